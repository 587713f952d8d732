// Package journal is the installer's memory on a node: what it has put where, how
// far it was when it was cut off, and what was there before.
//
// There is one record for each type of runtime, and one of restarts. They are
// written before the step that they are about. The lock keeps two installers
// apart. It decides nothing.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
)

// ErrUnwritten is wrapped by errors that say that the journal could not be written, as on a
// disk that is full.
var ErrUnwritten = errors.New("the installer's journal could not be written")

// Phase is how far a change is.
type Phase string

// The phases of a change, in their order. All but Done are resumed.
const (
	// Done says that nothing is in flight.
	Done Phase = ""
	// Staging says that the payload is being put into its folder.
	Staging Phase = "staging"
	// Writing says that the runtime's configuration is being changed.
	Writing Phase = "writing"
	// Restarting says that the runtime is being restarted and looked at.
	Restarting Phase = "restarting"
	// RollingBack says that the configuration is being put back.
	RollingBack Phase = "rolling-back"
	// Removing says that the handlers are being taken out of the configuration.
	Removing Phase = "removing"
	// Deleting says that they are out, and that the files are being deleted.
	Deleting Phase = "deleting"
)

// Record is what is known of one type of runtime.
type Record struct {
	Type  string `json:"type"`
	Phase Phase  `json:"phase,omitempty"`
	// Base is the folder of all its versions, and Made are folders that were not
	// there before, the outer ones first.
	Base string   `json:"base"`
	Made []string `json:"made,omitempty"`
	// Now is what is installed, and Next what is being installed.
	Now  *Release `json:"now,omitempty"`
	Next *Release `json:"next,omitempty"`
	// Old are releases that pods may still run on, the oldest first.
	Old []Release `json:"old,omitempty"`
	// Files are what was changed of the runtime's configuration, as it was before
	// the change in flight.
	Files []File `json:"files,omitempty"`
	// Written are all files of the runtime's configuration that were written for the type.
	Written []string `json:"written,omitempty"`
	// Served are the handlers that were served before the change in flight.
	Served []string `json:"served,omitempty"`
	// Turn numbers the change in flight, later ones higher; types that are changed
	// with one restart have the same, and are undone together. Place is which of
	// them this was. They are 0 if nothing is in flight.
	Turn  int `json:"turn,omitempty"`
	Place int `json:"place,omitempty"`
	// Before is the runtime as it was before the change in flight, for who undoes
	// that while it does not answer.
	Before json.RawMessage `json:"before,omitempty"`
	Failures
}

// Failures are attempts that failed. In JSON they are fields of the record.
type Failures struct {
	// Failed counts attempts at Next's hash that failed, and Retry is the
	// earliest time of the next one.
	Failed     int       `json:"failed,omitempty"`
	FailedHash string    `json:"failedHash,omitempty"`
	Retry      time.Time `json:"retry,omitzero"`
	LastError  string    `json:"lastError,omitempty"`
	LastReason string    `json:"lastReason,omitempty"`
}

// Settle says that nothing is in flight any more.
func (r *Record) Settle() {
	r.Phase, r.Next, r.Files, r.Served, r.Before = Done, nil, nil, nil, nil
	r.Turn, r.Place = 0, 0
}

// InFlight says whether a change was begun and neither finished nor undone.
func (r *Record) InFlight() bool { return r.Phase != Done && r.Phase != Deleting }

// Release is one version with its settings.
type Release struct {
	Version string `json:"version"`
	// Hash is of all that was rendered for it, and Manifest of the payload's
	// manifest.
	Hash     string `json:"hash"`
	Manifest string `json:"manifest"`
	// Dir and Config are its folders; Config is "" without configs.
	Dir    string `json:"dir"`
	Config string `json:"config,omitempty"`
	// Handlers are the names by which it is served.
	Handlers []string `json:"handlers"`
	// Render are the handlers as they were written, for who has to write them
	// again.
	Render json.RawMessage `json:"render,omitempty"`
	// Since is from when on its handlers were in the configuration, so that it may have
	// been served; zero if they never were. Until is when it was no longer.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// File is one changed file of the runtime's configuration.
type File struct {
	Path string `json:"path"`
	// Before is its content before the change, and Absent that there was none.
	Before []byte `json:"before,omitempty"`
	Absent bool   `json:"absent,omitempty"`
	// After is the SHA-256 of what was written; "" if it was removed.
	After string `json:"after"`
	// Shared says that another turn has begun since, so that the file cannot be put
	// back as a whole.
	Shared bool `json:"shared,omitempty"`
}

// Restarts is when a runtime was last restarted, for all types together.
type Restarts struct {
	Last time.Time `json:"last"`
}

// Journal is a folder of records.
type Journal struct {
	Dir string
}

// Lock waits until no other installer is at work, as long as done allows. The
// lock ends with the process, or by calling unlock.
func (j Journal) Lock(done <-chan struct{}) (unlock func(), err error) {
	for {
		f, err := j.tryLock(os.O_CREATE | os.O_RDWR)
		if err != nil {
			return nil, fmt.Errorf("lock the installer's journal: %w", err)
		}
		if f != nil {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-done:
			return nil, j.busy()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// KeepAway keeps installers away as Lock does, for one who installs nothing: it does not
// wait, and needs no right to write in the folder. Where no installer has been there is
// nothing to lock, and one that comes then is not kept away.
func (j Journal) KeepAway() (giveBack func(), err error) {
	f, err := j.tryLock(os.O_RDONLY)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("lock the installer's journal: %w", err)
	case f == nil:
		return nil, j.busy()
	}
	return func() { _ = f.Close() }, nil
}

func (j Journal) busy() error {
	return fmt.Errorf("lock %s: another installer is at work on this node: %w", j.Dir, errdefs.ErrUnavailable)
}

// tryLock is the locked file, or nil if somebody has the lock.
func (j Journal) tryLock(flags int) (*os.File, error) {
	if flags&os.O_CREATE != 0 {
		if err := os.MkdirAll(j.Dir, 0o700); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(j.Dir, "lock")
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && same(f, path) {
		return f, nil
	}
	_ = f.Close()
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	return nil, err
}

// same says whether a file is still the one at its path: Purge may have removed
// it while somebody waited for it.
func same(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(have, there)
}

// Read is the record of a type; one that has none is empty.
func (j Journal) Read(kind string) (*Record, error) {
	r := &Record{Type: kind}
	data, err := os.ReadFile(j.path(kind))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", kind, err)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read the journal of %s: %s: %w (%w)", kind, j.path(kind), err, errdefs.ErrInternal)
	}
	return r, nil
}

// Write keeps a record, also over a power cut.
func (j Journal) Write(r *Record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(j.Dir, 0o700)
	}
	if err == nil {
		err = atomicfile.WriteSync(j.path(r.Type), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w (%w)", r.Type, err, ErrUnwritten)
	}
	return nil
}

// Forget removes a record.
func (j Journal) Forget(kind string) error {
	if err := os.Remove(j.path(kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the journal of %s: %w", kind, err)
	}
	return nil
}

// Types are those that have records, sorted.
func (j Journal) Types() ([]string, error) {
	entries, err := os.ReadDir(j.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the journal: %w", err)
	}
	var all []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok && !strings.HasPrefix(name, ".") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all, nil
}

// All reads the records of all types, in the order of their names.
func (j Journal) All() ([]*Record, error) {
	types, err := j.Types()
	if err != nil {
		return nil, err
	}
	var all []*Record
	for _, kind := range types {
		r, err := j.Read(kind)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// LastRestart is when the runtime was last restarted by an installer.
func (j Journal) LastRestart() time.Time {
	var r Restarts
	data, err := os.ReadFile(filepath.Join(j.Dir, restarts))
	if err == nil && json.Unmarshal(data, &r) == nil {
		return r.Last
	}
	return time.Time{} // the worst that can come of it is one restart too early
}

// NoteRestart is called before each restart.
func (j Journal) NoteRestart(now time.Time) error {
	data, err := json.Marshal(Restarts{Last: now})
	if err == nil {
		err = atomicfile.WriteSync(filepath.Join(j.Dir, restarts), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note a restart: %w (%w)", err, ErrUnwritten)
	}
	return nil
}

// Purge removes the journal if it has no records; its caller has the lock.
func (j Journal) Purge() error {
	types, err := j.Types()
	if err != nil || len(types) > 0 {
		return err
	}
	// What a writer that was killed has left goes, too.
	all, err := filepath.Glob(filepath.Join(j.Dir, ".*.json.tmp-*"))
	if err != nil {
		return fmt.Errorf("remove the journal: %w", err)
	}
	for _, path := range append(all, filepath.Join(j.Dir, restarts), filepath.Join(j.Dir, "lock")) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the journal: %w", err)
		}
	}
	// The folder stays if it is a mount, or if somebody has made the lock anew.
	_ = os.Remove(j.Dir)
	return nil
}

const (
	suffix   = ".type.json"
	restarts = "restarts.json"
)

func (j Journal) path(kind string) string { return filepath.Join(j.Dir, kind+suffix) }
