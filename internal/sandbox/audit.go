package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

var _ pod.Keeper = (*Driver)(nil)

// Held lists folders of pods, what is mounted in them, and their cgroups.
func (d *Driver) Held(_ context.Context, records []*pod.Record) ([]pod.Held, error) {
	needed := map[string]bool{} // folders with files that containers share
	for _, r := range records {
		if r.State == pod.Running {
			needed[r.Sandbox.FilesDir()] = true
		}
	}
	base := filepath.Join(d.cfg.StateDir, podsFolder)
	out := []pod.Held{}
	for _, of := range []string{base, filepath.Join(d.cfg.RootDir, podsFolder)} {
		entries, err := os.ReadDir(of)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list folders of pods: %w", err)
		}
		for _, e := range entries {
			h := pod.Held{Kind: pod.KindFolder, Name: filepath.Join(of, e.Name()), Owner: e.Name()}
			if needed[h.Name] {
				h.Fault = missingFile(h.Name)
			}
			out = append(out, h)
		}
	}
	mounts, err := mountedIn(base)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		owner, rest, _ := strings.Cut(strings.TrimPrefix(m, base+"/"), "/")
		kind := pod.KindMount
		if filepath.Dir(rest) == nsFolder {
			kind = pod.KindNamespace
		}
		out = append(out, pod.Held{Kind: kind, Name: m, Owner: owner})
	}
	groups, err := d.heldCgroups(records)
	return append(out, groups...), err
}

// missingFile says which of the files that containers share is not there.
func missingFile(dir string) string {
	for _, name := range []string{pod.FileResolvConf, pod.FileHosts, pod.FileHostname} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return err.Error()
		}
	}
	return ""
}

// mountedIn lists mount points below a folder, each once.
func mountedIn(dir string) ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("list mounts below %s: %w", dir, err)
	}
	var out []string
	for _, i := range infos {
		if strings.HasPrefix(i.Mountpoint, dir+"/") {
			out = append(out, i.Mountpoint)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Wants is what a pod that accepts containers cannot do without.
func (d *Driver) Wants(r *pod.Record) []pod.Held {
	if r.State != pod.Running {
		return nil
	}
	var out []pod.Held
	want := func(k pod.Kind, name string) {
		if name != "" {
			out = append(out, pod.Held{Kind: k, Name: name, Owner: string(r.ID)})
		}
	}
	want(pod.KindFolder, r.Sandbox.Dir)
	want(pod.KindFolder, r.Sandbox.Files)
	for _, k := range kinds {
		want(pod.KindNamespace, *k.field(&r.Sandbox))
	}
	want(pod.KindMount, r.Sandbox.Shm)
	if d.wantsCgroup(r) {
		group := d.podCgroup(r)
		if lacking := d.lackingCgroups(r); len(lacking) > 0 {
			group.Fault = "it is not in " + strings.Join(lacking, ", ")
		}
		out = append(out, group)
	}
	return out
}

// Drop removes one thing of a pod.
func (d *Driver) Drop(ctx context.Context, h pod.Held) error {
	switch h.Kind {
	case pod.KindNamespace, pod.KindMount:
		return unmount(h.Name)
	case pod.KindFolder:
		return d.dropFolder(ctx, h)
	case pod.KindCgroup:
		return d.dropCgroup(ctx, h)
	}
	return fmt.Errorf("remove %s %s: sandboxes have none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}

// dropFolder deletes a folder. Whatever is mounted in it would be emptied.
func (d *Driver) dropFolder(_ context.Context, h pod.Held) error {
	dir, err := d.dir(pod.ID(h.Owner))
	if err != nil {
		return err
	}
	if files := d.files(pod.ID(h.Owner)); h.Name == files {
		dir = files
	}
	mounts, err := mountedIn(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("delete %s: %s is mounted in it; unmount that first: %w", dir, mounts[0], errdefs.ErrPrecondition)
	}
	return os.RemoveAll(dir)
}

// Restore puts back what a running pod has lost.
func (d *Driver) Restore(ctx context.Context, r *pod.Record, h pod.Held) error {
	fail := func(err error) error {
		return fmt.Errorf("put back %s %s of pod %s: %w", h.Kind, h.Name, r.ID.Short(), err)
	}
	var err error
	switch h.Kind {
	case pod.KindNamespace:
		err = repin(r, h.Name)
	case pod.KindFolder:
		if err = os.MkdirAll(filepath.Join(r.Sandbox.Dir, nsFolder), 0o700); err == nil {
			err = errors.Join(d.admit(r.Sandbox.Dir, &r.Config), d.writeFiles(r)) // in whichever folder they are
		}
	case pod.KindMount:
		err = d.mountShm(h.Name, &r.Config)
	case pod.KindCgroup:
		_, err = d.createCgroup(ctx, r.ID, &r.Config)
	default:
		err = fmt.Errorf("sandboxes have no %s: %w", h.Kind, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// repin pins a namespace again, from a process that is in it still.
func repin(r *pod.Record, at string) error {
	name := filepath.Base(at)
	for _, p := range processes(r) {
		from := fmt.Sprintf("/proc/%d/ns/%s", p.PID, name)
		ns, err := os.Open(from)
		if err != nil {
			continue
		}
		// Looked at after it was opened: the pid was the process's own then.
		same := startTime(p.PID) == p.StartTime
		own := same && !sameFile(from, "/proc/self/ns/"+name)
		if own {
			err = pinOpen(ns, at)
		}
		_ = ns.Close()
		if own {
			return err
		}
	}
	return fmt.Errorf("no process is left in it; remove the pod, and its owner makes another: %w", errdefs.ErrPrecondition)
}

func pinOpen(ns *os.File, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	if err := unmount(at); err != nil {
		return err
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	from := fmt.Sprintf("/proc/self/fd/%d", ns.Fd())
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin %s on %s: %w", from, at, err)
	}
	return nil
}

// processes are those of the pod that are in its namespaces.
func processes(r *pod.Record) (out []*pod.RunningProcess) {
	if r.Sandbox.Pause != nil {
		out = append(out, r.Sandbox.Pause)
	}
	for _, c := range r.Containers {
		if c.State == pod.Running && c.Process != nil {
			out = append(out, c.Process)
		}
	}
	return out
}

// startTime is field 22 of /proc/PID/stat, or 0.
func startTime(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, which may have spaces, ends with the last parenthesis.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	var ticks uint64
	if _, err := fmt.Sscan(fields[19], &ticks); err != nil {
		return 0
	}
	return ticks
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
