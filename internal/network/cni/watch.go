package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/dirwatch"
)

// dirEvents are all the ways in which a configuration can change.
const dirEvents = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM |
	unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB

// maxSettle bounds the wait for a directory that never becomes quiet, in
// multiples of Config.Settle.
const maxSettle = 10

// Run follows changes of the configuration until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	defer d.run.reaper.wait()
	defer d.setWatching(false)
	for ctx.Err() == nil {
		w, err := d.openWatch()
		if err != nil {
			// Without it the configuration is read again for each pod.
			d.setWatching(false)
			d.cfg.Log.Warn("cannot watch the CNI configuration, reading it for each pod", "error", err)
			<-ctx.Done()
			return nil
		}
		d.reload() // what happened before the watch was there
		err = d.awaitChange(ctx, w)
		if err := errors.Join(err, w.Close()); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch CNI configuration: %w", err)
		}
	}
	return nil
}

func (d *Driver) setWatching(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watching = on
}

func (d *Driver) reload() {
	cl := d.cfg.load()
	d.mu.Lock()
	d.watching = true
	changed := d.adopt(cl)
	d.mu.Unlock()
	switch {
	case !changed:
	case cl.err != nil:
		d.cfg.Log.Warn("CNI configuration changed and is not usable", "file", cl.file, "error", cl.err)
	case cl.configured:
		d.cfg.Log.Info("CNI configuration changed", "file", cl.file, "network", cl.list.Name)
	default:
		d.cfg.Log.Info("CNI configuration removed", "directory", d.cfg.ConfDir)
	}
}

// openWatch watches the directory, the folder of the current network's plugins
// in it, and, while the directory is missing, the nearest one above it.
func (d *Driver) openWatch() (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init", err)
	}
	f := os.NewFile(uintptr(fd), "CNI configuration events")
	dir := d.cfg.ConfDir
	if d.cfg.Conflist != "" {
		dir = filepath.Dir(d.cfg.Conflist)
	}
	if at, err := dirwatch.Add(fd, dir, dirEvents); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", at, err), f.Close())
	}
	d.mu.Lock()
	list := d.current.list
	d.mu.Unlock()
	if list != nil { // an optional folder: without it there is nothing to see
		_, _ = unix.InotifyAddWatch(fd, filepath.Join(dir, list.Name), dirEvents)
	}
	return f, nil
}

// awaitChange returns when something has changed and been quiet since.
func (d *Driver) awaitChange(ctx context.Context, w *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = w.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 16<<10)
	if _, err := w.Read(buf); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for range maxSettle {
		if err := w.SetReadDeadline(time.Now().Add(d.cfg.Settle)); err != nil {
			return err
		}
		_, err := w.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}
