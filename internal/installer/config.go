package installer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/files"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/process"
	"fairlead.run/internal/installer/profile"
	"fairlead.run/internal/installer/restart"
)

var (
	halfWritten = failpoint.Register("install.half-written")
	written     = failpoint.Register("install.written")
	restored    = failpoint.Register("install.restored")
)

// plan says what of the runtime's configuration has to change for a type to have
// the handlers of the job, or none, and from what.
func (i *Installer) plan(seen cri.Seen, r *journal.Record, j *job) ([]files.Change, error) {
	all, err := i.compute(seen, r, j)
	for n := range all {
		if err == nil {
			all[n].Old, err = i.node().Read(all[n].Path)
		}
	}
	if err == nil {
		err = i.reachable(all)
	}
	return all, err
}

// compute says what of the runtime's configuration has to change for a type to have
// the handlers of the job, or none.
func (i *Installer) compute(seen cri.Seen, r *journal.Record, j *job) ([]files.Change, error) {
	var all []files.Change
	if i.dist.Runtime == "crio" {
		c, err := i.loadCRIO()
		if err != nil {
			return nil, err
		}
		list, err := c.Plan(r.Type, j.crio)
		for _, x := range append(c.Former(r.Type, r.Written), list...) {
			all = append(all, files.Change{Path: x.Path, Data: x.Data})
		}
		return all, err
	}
	c, err := i.load()
	if err != nil {
		return nil, err
	}
	if len(j.containerd) > 0 {
		if err := c.Startable(); err != nil {
			return nil, err
		}
	}
	d := containerd.Daemon{Loaded: seen.Loaded}
	if d.Major, d.Minor, err = seen.Release(); err != nil {
		return nil, err
	}
	list, err := c.Plan(d, containerd.Want{Type: r.Type, Handlers: j.containerd, Owned: r.Owned(), Base: r.Base, Written: r.Written})
	for _, x := range list {
		all = append(all, files.Change{Path: x.Path, Data: x.Data})
	}
	return all, err
}

// load reads containerd's configuration.
func (i *Installer) load() (*containerd.Config, error) {
	c, err := readWide(i, func(d profile.Distribution) (*containerd.Config, error) { return containerd.Load(d.Containerd) })
	if err == nil {
		c.Root = i.dist.Containerd.Root
	}
	return c, err
}

// loadCRIO reads CRI-O's.
func (i *Installer) loadCRIO() (*crio.Config, error) {
	c, err := readWide(i, func(d profile.Distribution) (*crio.Config, error) { return crio.Load(d.CRIO) })
	if err == nil {
		c.Root = i.dist.CRIO.Root
	}
	return c, err
}

// readWide reads a configuration that imports what may be where nothing is mounted. What is
// changed is read where it is written, so that its root is to be set again.
func readWide[C any](i *Installer, read func(profile.Distribution) (*C, error)) (*C, error) {
	dist, err := i.asStarted()
	if err != nil {
		return nil, err
	}
	root := i.root()
	dist.Containerd.Root, dist.CRIO.Root = root, root
	c, err := read(dist)
	if _, gone := os.Stat(root + "/"); gone != nil {
		return read(i.dist) // the process has ended meanwhile
	}
	return c, err
}

// asStarted is the distribution with what the running runtime reads, as far as its
// process can be seen. What the user has said comes before it.
func (i *Installer) asStarted() (profile.Distribution, error) {
	pid, err := i.runtime.PID()
	if err != nil || i.options.Config != "" {
		return i.dist, nil
	}
	p := profile.Process{Write: i.writable}
	if p.Start, err = profile.ReadStart("/proc", pid); err != nil {
		return i.dist, nil
	}
	if s, ok := i.restarter.(restart.Systemd); ok {
		p.Unit, p.Before = s.Unit, i.dist.Before(i.root(), s.Unit, p.Env)
	}
	return i.dist.StartedAs(p)
}

// writable says whether a file of the node, or files in a folder, can be written from here.
func (i *Installer) writable(path string) error {
	root := i.root()
	at := inroot.Join(root, path)
	if err := unix.Access(at, unix.W_OK); err != nil {
		return err
	}
	if info, err := os.Stat(at); err == nil && info.IsDir() {
		path = filepath.Join(path, "file")
	}
	return mounted(root, i.options.Root, path)
}

// pending refuses to restart the runtime where that would also take handlers away:
// somebody has taken them out of its files, and it has not read these yet.
func (i *Installer) pending(seen cri.Seen) error {
	var gone []string
	if i.dist.Runtime == "crio" {
		c, err := i.loadCRIO()
		if err != nil {
			return err
		}
		gone = c.Pending(seen.Handlers)
	} else {
		c, err := i.load()
		if err != nil {
			return err
		}
		d := containerd.Daemon{Loaded: seen.Loaded}
		if d.Major, d.Minor, err = seen.Release(); err != nil {
			return err
		}
		gone = c.Pending(d)
	}
	all, err := i.journal.All()
	if err != nil {
		return err
	}
	for _, r := range all {
		ours := r.Handlers()
		gone = slices.DeleteFunc(gone, func(h string) bool { return slices.Contains(ours, h) })
	}
	if len(gone) > 0 {
		return fault.New(payload.Conflict, "%s serves %s and its configuration no longer does: somebody's change waits for a restart; restart %s, or put that back", seen.Name, strings.Join(gone, " and "), seen.Name)
	}
	return nil
}

// reloadable refuses SIGHUP where CRI-O would serve handlers afterwards on which no
// container starts: it looks for their monitor only when it starts.
func (i *Installer) reloadable(seen cri.Seen, all []*install) error {
	if _, ok := i.restarter.(restart.Hangup); !ok {
		return nil
	}
	c, err := i.loadCRIO()
	if err != nil {
		return err
	}
	lost := c.Unmonitored(seen.Handlers)
	for _, in := range all {
		lost = slices.DeleteFunc(lost, func(h string) bool { return slices.Contains(in.record.Owned(), h) })
		for _, h := range in.job.crio {
			if crio.NeedsMonitor(h.RuntimeType) {
				lost = append(lost, h.Name)
			}
		}
	}
	if len(lost) > 0 {
		return fault.New(payload.ConfigurationProblem, "after SIGHUP CRI-O starts no container on %s, whose configuration has no monitor_path; restart it by systemd or a command", strings.Join(lost, " and "))
	}
	return nil
}

// write makes the changes and notes in the record, before it makes one, what was
// there. What an earlier attempt has noted is what was there.
func (i *Installer) write(r *journal.Record, changes []files.Change) error {
	for _, c := range changes {
		if err := i.note(r, c); err != nil {
			return err
		}
	}
	if err := i.journal.Write(r); err != nil {
		return err
	}
	for n, c := range changes {
		if err := i.node().Put(c); err != nil {
			return err
		}
		if n == 0 {
			if err := failpoint.Hit(halfWritten); err != nil {
				return err
			}
		}
	}
	return failpoint.Hit(written)
}

func (i *Installer) note(r *journal.Record, c files.Change) error {
	after := ""
	if c.Data != nil {
		after = files.Sum(c.Data)
		if !slices.Contains(r.Written, c.Path) {
			r.Written = append(r.Written, c.Path)
		}
	}
	for n := range r.Files {
		if r.Files[n].Path == c.Path {
			r.Files[n].After = after
			return nil
		}
	}
	r.Files = append(r.Files, journal.File{Path: c.Path, Before: c.Old, Absent: c.Old == nil, After: after})
	return i.missing(r, filepath.Dir(c.Path))
}

// missing notes the folders above and at a path that are not there.
func (i *Installer) missing(r *journal.Record, dir string) error {
	made, err := i.node().Missing(dir)
	if err != nil {
		return err
	}
	for _, d := range made {
		if !slices.Contains(r.Made, d) {
			r.Made = append(r.Made, d)
		}
	}
	return nil
}

// restore puts the configuration back as it was before the change in flight. A
// file that somebody has edited meanwhile keeps the edit: only what is ours in it
// is put back.
func (i *Installer) restore(seen cri.Seen, r *journal.Record) error {
	edited := false
	for n := len(r.Files) - 1; n >= 0; n-- {
		f := r.Files[n]
		now, err := i.node().Read(f.Path)
		absent := now == nil
		switch {
		case err != nil:
			return fmt.Errorf("restore %s: %w", f.Path, err)
		case f.Shared:
			edited = true
			continue
		case absent && f.Absent, !absent && !f.Absent && string(now) == string(f.Before):
			continue
		case absent && f.After != "", !absent && files.Sum(now) != f.After:
			edited = true
			continue
		}
		back := files.Change{Path: f.Path, Old: now, Data: f.Before}
		if f.Absent {
			back.Data = nil
		} else if back.Data == nil {
			back.Data = []byte{}
		}
		if err := i.node().Put(back); err != nil {
			return err
		}
	}
	if edited {
		if err := i.replan(seen, r); err != nil {
			return err
		}
	}
	return failpoint.Hit(restored)
}

// replan has the configuration name what was there before the change, whatever
// else it says.
func (i *Installer) replan(seen cri.Seen, r *journal.Record) error {
	old, err := i.rendered(r.Now)
	if err != nil {
		return err
	}
	if seen.Version == "" {
		return fmt.Errorf("restore the configuration: somebody has edited it meanwhile, and the runtime does not answer, so that its version is not known: %w", errdefs.ErrUnavailable)
	}
	changes, err := i.plan(seen, r, old)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := i.node().Put(c); err != nil {
			return err
		}
	}
	return nil
}

// dump has containerd itself read what was written, before it is restarted with
// it. It returns a warning where its program cannot be run from here.
func (i *Installer) dump(ctx context.Context) (warning string, err error) {
	if i.dist.Runtime != "containerd" || i.dist.Containerd.Generated {
		return "", nil
	}
	c, err := i.load()
	if err != nil {
		return "", err
	}
	root := i.root()
	return c.Dump(ctx, root, i.program(root))
}

// program is containerd's, as a path on the node: that of the process, or one of
// the usual ones.
func (i *Installer) program(root string) string {
	if pid, err := i.runtime.PID(); err == nil {
		if path, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err == nil && process.Runnable(inroot.Join(root, path)) {
			return path
		}
	}
	for _, path := range i.dist.Programs {
		if process.Runnable(inroot.Join(root, path)) {
			return path
		}
	}
	return ""
}
