package installer

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
)

// ofUninstall are the places that an uninstall passes, ofUndo those of a change that
// fails; an install that succeeds passes the others, some only as an upgrade.
var (
	ofUninstall = []string{"install.removing", "install.unserved", "install.unhooked", "install.deleted", "install.forgotten"}
	ofUndo      = []string{"install.undoing", "install.restored", "install.undone"}
)

// An installer is killed at every place that there is. The next one makes the node
// what it was to be, and nothing of either attempt is left after an uninstall.
func TestKilledAtEveryPlace(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		for _, place := range places(t) {
			if slices.Contains(ofUninstall, place) || slices.Contains(ofUndo, place) {
				continue
			}
			d.install(small(t, "test", "1"))
			second := small(t, "test", "2")
			o := d.fairlead(kill(place), payloads([]*bundle{second})...)
			if o.code != -1 {
				t.Fatalf("%s: nobody was killed: %d %s", place, o.code, o.stderr)
			}
			d.keeps(place, "runc", "foreign", "test")
			d.install(second)
			d.serves("runc", "foreign", "test")
			d.uninstall("test")
			d.serves("runc", "foreign")
			same(t, before, d.configFiles())
			d.bare()
		}
	})
}

func kill(place string) []string { return []string{failpoint.Env + "=" + place + "=kill"} }

// keeps fails if a handler is not served.
func (d *daemon) keeps(place string, want ...string) {
	d.Helper()
	d.await()
	for _, h := range want {
		if got := d.handlers(); !slices.Contains(got, h) {
			d.Fatalf("%s: %s is not served: %v", place, h, got)
		}
	}
}

func TestUninstallerKilledAtEveryPlace(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		for _, place := range ofUninstall {
			d.install(small(t, "test", "1"))
			if o := d.fairlead(kill(place), "uninstall", "test"); o.code != -1 {
				t.Fatalf("%s: nobody was killed: %d %s", place, o.code, o.stderr)
			}
			d.keeps(place, "runc", "foreign")
			// Half of the time it is wanted again.
			if len(place)%2 == 0 {
				d.install(small(t, "test", "2"))
				d.serves("runc", "foreign", "test")
			}
			if o := d.fairlead(nil, "--payload", small(t, "test", "1").dir, "--remove"); o.code != 0 {
				d.Fatalf("%s: what is removed again ended with %d: %+v\n%s", place, o.code, o.results, o.stderr)
			}
			d.serves("runc", "foreign")
			same(t, before, d.configFiles())
			d.bare()
		}
	})
}

// A change fails, and who undoes it is killed.
func TestUndoerKilledAtEveryPlace(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		d.install(small(t, "test", "1"))
		before, usr := d.configFiles(), tree(t, d.path("usr"))
		for _, place := range ofUndo {
			bad := small(t, "test", "2-"+place) // one that has failed is not tried again at once
			bad.Checks[0].Command = []string{"shim", "x"}
			bad.Files = nil
			bad.add(t, vmShim, []byte("#!/bin/sh\n"), "0755")
			bad.add(t, "shim", []byte("#!/bin/sh\nexit 1\n"), "0755")
			bad.save(t)
			if o := d.fairlead(kill(place), payloads([]*bundle{bad})...); o.code != -1 {
				t.Fatalf("%s: nobody was killed: %d %s", place, o.code, o.stderr)
			}
			d.keeps(place, "runc", "foreign", "test")
			d.install(small(t, "test", "1"))
			d.serves("runc", "foreign", "test")
			same(t, before, d.configFiles())
			same(t, usr, tree(t, d.path("usr")))
		}
	})
}

// A step that fails takes everything back.
func TestFailureAtEveryPlace(t *testing.T) {
	underBoth(t, func(t *testing.T, d *daemon) {
		d.install(small(t, "test", "1"))
		before, usr := d.configFiles(), tree(t, d.path("usr"))
		for _, place := range places(t) {
			if slices.Contains(ofUninstall, place) || slices.Contains(ofUndo, place) {
				continue
			}
			o := d.fairlead([]string{failpoint.Env + "=" + place + "=error"}, payloads([]*bundle{small(t, "test", "2-"+place)})...)
			r := o.first(t)
			switch {
			case place == "install.committed":
				if r.State != payload.Installed {
					t.Errorf("%s: %+v", place, r)
				}
				d.install(small(t, "test", "1"))
			case place == "install.collected":
				// The new version works, and the old one is collected later.
				if r.State != payload.Installed || len(r.Warnings) == 0 {
					t.Errorf("%s: %+v", place, r)
				}
				d.install(small(t, "test", "1"))
			case place == "install.locked":
				if r.State != payload.Refused {
					t.Errorf("%s: %+v", place, r)
				}
			case r.State != payload.RolledBack || !strings.Contains(r.Message, "failpoint "+place):
				t.Errorf("%s: %+v", place, r)
			}
			d.serves("runc", "foreign", "test")
			same(t, before, d.configFiles())
			same(t, usr, tree(t, d.path("usr")))
			if r := d.install(small(t, "test", "1"))[0]; r.Restarted {
				t.Errorf("%s: the old version was not there: %+v", place, r)
			}
		}
	})
}

func TestTwoInstallersAtOnce(t *testing.T) {
	underBoth(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		for range 3 {
			var wg sync.WaitGroup
			outcomes := make([]outcome, 4)
			for n, b := range []*bundle{small(t, "test", "1"), small(t, "test", "1"), small(t, "other", "1"), small(t, "third", "1")} {
				wg.Go(func() { outcomes[n] = run(t, d.command(nil, "--payload", b.dir)) })
			}
			wg.Wait()
			for _, o := range outcomes {
				if o.code != 0 {
					t.Fatalf("%+v %s", o.results, o.stderr)
				}
			}
			d.serves("runc", "foreign", "test", "other", "third")
			for n, kind := range []string{"test", "other", "third"} {
				wg.Go(func() { outcomes[n] = run(t, d.command(nil, "uninstall", kind)) })
			}
			wg.Wait()
			for _, o := range outcomes[:3] {
				if o.code != 0 {
					t.Fatalf("%+v %s", o.results, o.stderr)
				}
			}
			d.serves("runc", "foreign")
			same(t, before, d.configFiles())
			d.bare()
		}
		// One that waits too long says why.
		slow := d.command([]string{failpoint.Env + "=install.locked=sleep:20s"}, "--payload", small(t, "test", "1").dir)
		if err := slow.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = slow.Process.Kill()
			_ = slow.Wait()
		}()
		until(t, "the lock", func() bool { return locked(d.path("journal/lock")) })
		r := d.fairlead(nil, "--payload", small(t, "test", "1").dir, "--lock-wait", "300ms").first(t)
		if r.State != payload.Refused || r.Reason != payload.Busy {
			t.Fatalf("%+v", r)
		}
	})
}

// locked says whether somebody holds a lock.
func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // which gives the lock back
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
