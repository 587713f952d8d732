package network

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/keylock"
	"fairlead.run/internal/pod"
)

var (
	recorded  = failpoint.Register("network.recorded")
	forgotten = failpoint.Register("network.forgotten")
)

// EntryVersion is the version of Entry that this build writes.
const EntryVersion = 1

// State says how far an attachment has come.
type State string

// The states of an Entry.
const (
	// Adding is written before the host is changed.
	Adding State = "adding"
	// Attached is written when the driver has finished; Result is complete.
	Attached State = "attached"
	// Damaged is an entry whose file cannot be read. Only its ID is known.
	Damaged State = "damaged"
)

// Entry is one attachment as the ledger remembers it.
type Entry struct {
	Version int             `json:"version"`
	ID      pod.ID          `json:"id"`
	Driver  string          `json:"driver"`
	State   State           `json:"state"`
	Boot    string          `json:"boot"` // kernel boot id at the time of Attach
	Created time.Time       `json:"created"`
	Request Request         `json:"request"`
	Result  Result          `json:"result"`
	Data    json.RawMessage `json:"data,omitempty"` // the driver's own, needed to release

	// Durable entries have to outlive a power cut, because what they stand for
	// does: a CNI plugin's address is reserved on disk.
	Durable bool `json:"durable,omitempty"`
}

// Ledger remembers every attachment from before it is made until it has been
// released, across crashes of the daemon and reboots of the node.
//
// It is one small file per attachment. That survives the death of the daemon,
// because the page cache does. It is not flushed on the
// way, because a flush costs a pod start between 0.1 and 10 ms and, on a node
// that starts many pods, seconds. A power cut may therefore lose the newest
// files. For the built-in bridge that is no loss, since nothing of an
// attachment outlives the boot. Durable entries are flushed by Run, together
// and after the fact; what a power cut takes within that second is found again
// in the CNI library's cache of results or by the plugins' own garbage
// collection.
type Ledger struct {
	dir  string
	boot string

	locks keylock.Locks[pod.ID]
	dirty chan struct{} // capacity 1: something waits in unflushed

	mu        sync.Mutex
	entries   map[pod.ID]Entry
	inherited map[pod.ID]struct{} // from an earlier process, not adopted yet
	unflushed map[pod.ID]struct{}
}

// LedgerConfig says where a ledger is.
type LedgerConfig struct {
	Dir    string // made if it is missing; on persistent storage
	BootID string // empty means the running kernel's
}

// OpenLedger reads the ledger. A file that cannot be read becomes a Damaged
// entry, so that one bad file neither hides the others nor is forgotten.
func OpenLedger(cfg LedgerConfig) (*Ledger, error) {
	if cfg.BootID == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return nil, fmt.Errorf("open network ledger %s: read the kernel's boot id: %w", cfg.Dir, err)
		}
		cfg.BootID = strings.TrimSpace(string(b))
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open network ledger: %w", err)
	}
	l := &Ledger{
		dir: cfg.Dir, boot: cfg.BootID,
		dirty:     make(chan struct{}, 1),
		entries:   map[pod.ID]Entry{},
		inherited: map[pod.ID]struct{}{},
		unflushed: map[pod.ID]struct{}{},
	}
	files, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open network ledger: %w", err)
	}
	for _, f := range files {
		l.load(f.Name())
	}
	return l, nil
}

func (l *Ledger) load(name string) {
	stem, ok := strings.CutSuffix(name, ".json")
	if !ok || !validID.MatchString(stem) {
		if strings.Contains(name, ".json.tmp-") { // of a writer that was killed
			_ = os.Remove(filepath.Join(l.dir, name))
		}
		return
	}
	id := pod.ID(stem)
	var e Entry
	b, err := os.ReadFile(filepath.Join(l.dir, name))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil || e.ID != id || e.Driver == "" || e.Version > EntryVersion {
		e = Entry{ID: id, State: Damaged}
	}
	l.entries[id] = e
	l.inherited[id] = struct{}{}
}

// Lock makes the caller the only one who works on id, until it calls unlock.
func (l *Ledger) Lock(ctx context.Context, id pod.ID) (unlock func(), err error) {
	return l.locks.Lock(ctx, id)
}

// Get returns the entry of id.
func (l *Ledger) Get(id pod.ID) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[id]
	return e, ok
}

// List returns the entries of one driver, and the damaged ones, by id.
func (l *Ledger) List(driver string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Entry
	for _, e := range l.entries {
		if e.Driver == driver || e.State == Damaged {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Record writes the entry and adopts it. The caller fills in all but the
// Version, the Boot and, the first time, Created.
func (l *Ledger) Record(e Entry) error {
	if !validID.MatchString(string(e.ID)) || e.Driver == "" {
		return fmt.Errorf("record network attachment %q of driver %q: %w", e.ID, e.Driver, errdefs.ErrInvalidArgument)
	}
	e.Version, e.Boot, e.Request = EntryVersion, l.boot, e.Request.forLedger()
	if e.Created.IsZero() {
		e.Created = time.Now().UTC()
	}
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("record network attachment of pod %s: %w", e.ID, err)
	}
	err = l.write(e.ID, b)
	if err == nil {
		err = failpoint.Hit(recorded)
	}
	if err != nil {
		return fmt.Errorf("record network attachment of pod %s: %w", e.ID, errors.Join(err, l.unwrite(e.ID)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[e.ID] = e
	delete(l.inherited, e.ID)
	if e.Durable {
		l.unflushed[e.ID] = struct{}{}
		select {
		case l.dirty <- struct{}{}:
		default:
		}
	}
	return nil
}

// write replaces a file in one step. One that is new needs no such care, which
// would take longer than the rest: if the process dies in between, the entry is
// a damaged one, and nothing had been done to the host yet.
func (l *Ledger) write(id pod.ID, b []byte) error {
	f, err := os.OpenFile(l.path(id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return atomicfile.Write(l.path(id), b, 0o600)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// unwrite takes back a write that failed. A file that was there before stays:
// it is one version of the entry or the other.
func (l *Ledger) unwrite(id pod.ID) error {
	if _, known := l.Get(id); known {
		return nil
	}
	if err := os.Remove(l.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Forget drops the entry: nothing of the attachment is left. An entry that
// comes back after a power cut is released a second time, which is harmless.
func (l *Ledger) Forget(id pod.ID) error {
	if !validID.MatchString(string(id)) {
		return nil
	}
	if err := os.Remove(l.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget network attachment of pod %s: %w", id, err)
	}
	if err := failpoint.Hit(forgotten); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, id)
	delete(l.inherited, id)
	delete(l.unflushed, id)
	return nil
}

// Adopt says that a pod of this process owns the entry, so that Reconcile
// leaves it alone.
func (l *Ledger) Adopt(id pod.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inherited, id)
}

// Inherited says whether the entry was made by an earlier process and nobody
// has asked for it since.
func (l *Ledger) Inherited(id pod.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.inherited[id]
	return ok
}

// ThisBoot says whether the entry was made since the kernel started. Network
// interfaces of an older one are gone for certain.
func (l *Ledger) ThisBoot(e Entry) bool { return e.Boot == l.boot }

func (l *Ledger) path(id pod.ID) string { return filepath.Join(l.dir, string(id)+".json") }

// flushDelay is how long Run collects durable entries before it flushes them.
const flushDelay = 500 * time.Millisecond

// Run flushes durable entries to disk, away from the path of a pod's start,
// until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return l.flush()
		case <-l.dirty:
		}
		select {
		case <-ctx.Done():
		case <-time.After(flushDelay):
		}
		if err := l.flush(); err != nil {
			return err
		}
	}
}

func (l *Ledger) flush() error {
	l.mu.Lock()
	todo := slices.Collect(maps.Keys(l.unflushed))
	clear(l.unflushed)
	l.mu.Unlock()
	if len(todo) == 0 {
		return nil
	}
	for _, id := range todo {
		if err := syncPath(l.path(id)); err != nil {
			return fmt.Errorf("flush network attachment of pod %s: %w", id, err)
		}
	}
	if err := syncPath(l.dir); err != nil {
		return fmt.Errorf("flush network ledger: %w", err)
	}
	return nil
}

// syncPath flushes a file or directory; one that is gone needs no flush.
func syncPath(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}
