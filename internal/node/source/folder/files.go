package folder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/keep"
)

// Times of a file.
const (
	patience = 5 * time.Second // with one that somebody writes to and does not close
	young    = time.Second     // how long an empty one is taken for one that was just made
	fresh    = 2 * time.Second // how long the time of a change may be the same for two
)

// files are what is known of the files of a folder.
type files struct {
	folder  string
	decode  func(manifest.Source) (*manifest.File, error)
	keep    *keep.Copies
	entries map[string]*entry
	dirty   map[string]bool      // files with events since they were read
	writing map[string]time.Time // when somebody wrote last to a file that is not closed since
	all     bool                 // dirty
}

// entry is what is known of one file.
type entry struct {
	stamp   stamp // of what was read last
	doubt   bool  // it was read so soon after a change that the stamp may be that of two versions
	good    *manifest.File
	sum     [sha256.Size]byte // of the good version
	problem error             // with what was read last
}

func newFiles(c Config) files {
	folder := filepath.Clean(c.Path)
	return files{folder: folder, decode: source.Decoder(c.Static), keep: keep.Of(folder, c.Keep), entries: map[string]*entry{}, dirty: map[string]bool{}, writing: map[string]time.Time{}}
}

// restore takes up what an earlier agent has kept, and says whether that is
// anything.
func (f *files) restore() bool {
	for _, c := range f.keep.Load() {
		name := filepath.Base(c.Name)
		good, err := f.decode(manifest.Source{Name: c.Name, Data: c.Data})
		if err != nil || filepath.Dir(c.Name) != f.folder {
			f.keep.Remove(c.Name)
			continue
		}
		f.entries[name] = &entry{good: good, sum: sha256.Sum256(c.Data)}
	}
	return len(f.entries) > 0
}

// note takes notice of an event.
func (f *files) note(e event, now time.Time) {
	switch {
	case e.name == "":
		f.all = true // events were lost, or it is about the folder
	case e.mask&unix.IN_MODIFY != 0:
		f.writing[e.name] = now
	case e.mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_DELETE) != 0:
		delete(f.writing, e.name)
	}
	f.dirty[e.name] = true
}

// complete has a file read at once that has changed as a whole, whatever events there are
// of it.
func (f *files) complete(name string) {
	delete(f.writing, name)
	f.dirty[name] = true
}

// take brings the files in line with the names in the folder. It says whether that
// changed anything, and when to look again for what is not ready.
func (f *files) take(names []string, now time.Time) (changed bool, again time.Duration) {
	again, changed = audit, f.keep.Again()
	there := map[string]bool{}
	for _, name := range names {
		t := f.file(name, now)
		there[name] = !t.gone
		changed = changed || t.changed
		if t.wait > 0 {
			again = min(again, t.wait)
		}
	}
	for name := range f.entries {
		if !there[name] {
			delete(f.entries, name)
			f.keep.Remove(filepath.Join(f.folder, name))
			changed = true
		}
	}
	if f.keep.Failing() {
		again = min(again, keep.Retry)
	}
	maps.DeleteFunc(f.writing, func(name string, _ time.Time) bool { return !there[name] })
	clear(f.dirty)
	f.all = false
	return changed, again
}

// taken is what came of a look at one file.
type taken struct {
	gone    bool
	changed bool
	wait    time.Duration // it is being written; until when
}

func (f *files) file(name string, now time.Time) taken {
	path := filepath.Join(f.folder, name)
	e := f.entries[name]
	at, err := look(path)
	if errors.Is(err, errFolder) || errors.Is(err, fs.ErrNotExist) {
		return taken{gone: true}
	}
	if err != nil {
		return taken{changed: f.bad(name, fmt.Errorf("manifest %s %w", path, err))}
	}
	if wait := f.busy(name, at, now); wait > 0 {
		return taken{wait: wait}
	}
	if e != nil && e.stamp == at && !e.doubt && !f.dirty[name] && !f.all {
		return taken{}
	}
	data, was, err := read(path)
	if err != nil {
		return taken{changed: f.bad(name, fmt.Errorf("manifest %s %w", path, err))}
	}
	if is, _ := look(path); is != was && f.writing[name].IsZero() {
		f.writing[name] = now
		return taken{wait: settle}
	}
	delete(f.writing, name)
	changed := f.renew(name, data)
	e = f.entries[name]
	e.stamp, e.doubt = was, within(now.Sub(was.changed), fresh)
	return taken{changed: changed}
}

// busy says how long to wait with a file that does not seem to be complete.
func (f *files) busy(name string, at stamp, now time.Time) time.Duration {
	if last := f.writing[name]; !last.IsZero() {
		return max(last.Add(patience).Sub(now), 0)
	}
	age := now.Sub(at.changed)
	switch {
	case at.size == 0 && within(age, young):
		return young - age
	case f.entries[name] == nil && !f.dirty[name] && within(age, settle): // there may have been events before the watch
		return settle - age
	}
	return 0
}

// within says whether something of an age is younger than that. Clocks are set
// back, too.
func within(age, limit time.Duration) bool { return age >= 0 && age < limit }

// renew takes a new version, and says whether that changes anything.
func (f *files) renew(name string, data []byte) bool {
	path := filepath.Join(f.folder, name)
	sum := sha256.Sum256(data)
	e := f.entry(name)
	if e.good != nil && e.sum == sum {
		mended := e.problem != nil
		e.problem = nil
		return mended
	}
	good, err := f.decode(manifest.Source{Name: path, Data: data})
	if err != nil {
		return f.bad(name, err)
	}
	e.good, e.sum, e.problem = good, sum, nil
	f.keep.Save(keep.Copy{Name: path, Data: data})
	return true
}

func (f *files) entry(name string) *entry {
	if f.entries[name] == nil {
		f.entries[name] = &entry{}
	}
	return f.entries[name]
}

// bad reports a fault of a file, and says whether it is a new one.
func (f *files) bad(name string, err error) bool {
	e := f.entry(name)
	e.stamp = stamp{} // read it again
	what := "none of its pods run until it is mended"
	if e.good != nil {
		what = "what it held before stays in force until it is mended or deleted"
	}
	err = fmt.Errorf("%w\n%s: %s", err, filepath.Join(f.folder, name), what)
	was := e.problem
	e.problem = err
	return was == nil || was.Error() != err.Error()
}

// merge is what all files hold.
func (f *files) merge() (*manifest.Objects, []source.Problem) {
	var good []*manifest.File
	var problems []source.Problem
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		e := f.entries[name]
		if e.good != nil {
			good = append(good, e.good)
		}
		if e.problem != nil {
			problems = append(problems, source.Problem{Origin: filepath.Join(f.folder, name), Err: e.problem})
		}
	}
	objects, more := manifest.Merge(good)
	return objects, slices.Concat(problems, more, f.keep.Problems())
}
