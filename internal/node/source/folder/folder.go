package folder

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/changeset"
	"fairlead.run/internal/node/source/keep"
)

// Times of a folder.
const (
	settle  = 50 * time.Millisecond // without an event, before it is read
	busiest = time.Second           // from the first event, however many follow
	retry   = time.Second           // while the folder cannot be read or watched
	audit   = 20 * time.Second      // between two looks that no event asked for
)

// maxFiles bounds the files of one folder.
const maxFiles = 5000

// Config says what to read.
type Config struct {
	Path string // absolute
	// Keep is where the last good version of each file is kept for the next agent.
	// No other source may use it.
	Keep keep.Folder
	// Static has the folder read as a kubelet does: all its files but hidden ones hold
	// static pods of a node, and Path may be a single file, of which the folder is
	// watched all the same: files are replaced by others of their name.
	Static bool
	// Changes is the folder as others within this process change it, several files at
	// once: all are read before that, or all after. Nil if nobody does.
	Changes *changeset.Folder
	Log     *slog.Logger
}

// Source is one folder.
type Source struct {
	path    string
	log     *slog.Logger
	set     func(source.Set)
	changes *changeset.Folder
	files   files
	static  bool   // see Config
	only    string // the one file that is read; empty for all
	most    int    // files
	watch   *watch
	deaf    error // why there is no watch
	place   place // that was read last
	known   bool  // whether the files are those of the folder, or of an earlier agent
	problem error // with the folder as a whole
	changed bool  // since the last set
}

// place tells one folder from another at the same path.
type place struct{ device, inode uint64 }

// New makes a source that calls set, from the goroutine of Run, at the beginning
// and whenever anything has changed.
func New(c Config, set func(source.Set)) *Source {
	c.Path = filepath.Clean(c.Path)
	only := ""
	if c.Static && isFile(c.Path) {
		c.Path, only = filepath.Dir(c.Path), filepath.Base(c.Path)
	}
	return &Source{path: c.Path, only: only, log: c.Log, set: set, changes: c.Changes, most: maxFiles, static: c.Static, files: newFiles(c)}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Run follows the folder until ctx ends. It returns nil then, and never before.
func (s *Source) Run(ctx context.Context) error {
	defer s.unwatch()
	s.known = s.files.restore()
	s.changed = true
	for {
		again := s.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for s.changed {
			s.set(s.all())
			s.changed = s.known && s.files.keep.Told()
		}
		if !s.wait(ctx, again) {
			return nil
		}
	}
}

// all is the set as it is now.
func (s *Source) all() source.Set {
	objects, problems := s.files.merge()
	if s.problem != nil {
		problems = slices.Insert(problems, 0, source.Problem{Origin: s.path, Err: s.problem})
	}
	if !s.known {
		objects = nil
	}
	return source.Set{Objects: objects, Problems: problems}
}

// wait waits for events to come and to be over, or for a time. It says whether ctx
// goes on.
func (s *Source) wait(ctx context.Context, again time.Duration) bool {
	var events <-chan event // none without a watch
	if s.watch != nil {
		events = s.watch.events
	}
	timer := time.NewTimer(again)
	defer timer.Stop()
	var latest time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case e := <-events:
			now := time.Now()
			s.files.note(e, now)
			if latest.IsZero() {
				latest = now.Add(busiest)
			}
			timer.Reset(min(settle, latest.Sub(now)))
		}
	}
}

// look reads what has changed, and says when to look again if nothing happens.
func (s *Source) look(ctx context.Context) time.Duration {
	release, err := s.hold(ctx)
	defer release()
	var names []string
	if err == nil {
		names, err = s.names()
	}
	if err != nil {
		s.report(fmt.Errorf("manifest folder %s: %w; the pods of its files stay as they are until it can be read again", s.path, err))
		s.unwatch()
		return retry
	}
	again := audit
	var problem error
	if s.watch == nil {
		problem, again = fmt.Errorf("manifest folder %s: changes are noticed late, as it cannot be watched: %w", s.path, s.deaf), retry
	}
	if len(names) > s.most {
		problem = fmt.Errorf("manifest folder %s: it holds %d manifests, and only the first %d by name are read; put several objects into one file", s.path, len(names), s.most)
		names = names[:s.most]
	}
	s.report(problem)
	changed, soon := s.files.take(names, time.Now())
	s.changed = s.changed || changed || !s.known
	s.known = true
	return min(again, soon)
}

// hold has nobody else change the folder until release is called.
func (s *Source) hold(ctx context.Context) (release func(), err error) {
	if s.changes == nil {
		return func() {}, nil
	}
	held, err := s.changes.Lock(ctx)
	if err != nil {
		return func() {}, err
	}
	for _, name := range held.Changed() {
		s.files.complete(name)
	}
	return held.Release, nil
}

func (s *Source) report(problem error) {
	if fmt.Sprint(problem) != fmt.Sprint(s.problem) {
		s.changed = true
	}
	s.problem = problem
}

// names are the names of manifests in the folder, in order. The folder is watched
// before it is listed, so that nothing is missed in between.
func (s *Source) names() ([]string, error) {
	dir, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err.(*fs.PathError).Err
	}
	defer func() { _ = dir.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	here := place{st.Dev, st.Ino}
	if s.watch == nil || here != s.place {
		s.unwatch()
		before := s.deaf
		s.watch, s.deaf = newWatch(dir)
		if s.deaf != nil && (before == nil || before.Error() != s.deaf.Error()) { // it is tried each second
			s.log.Warn("a manifest folder is not watched", "folder", s.path, "error", s.deaf)
		}
	}
	entries, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(name string) bool { return !s.isManifest(name) })
	if len(entries) == 0 && len(s.files.entries) > 0 && s.place.device != 0 && here.device != s.place.device {
		return nil, fmt.Errorf("it is empty and on another file system than before, so that something seems not to be mounted; mount it, or put a file there")
	}
	s.place = here
	slices.Sort(entries)
	return entries, nil
}

func (s *Source) isManifest(name string) bool {
	if s.only != "" {
		return name == s.only
	}
	return !strings.HasPrefix(name, ".") && (s.static || slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))))
}

func (s *Source) unwatch() {
	if s.watch != nil {
		s.watch.close()
		s.watch = nil
	}
}
