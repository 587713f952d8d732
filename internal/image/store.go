package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/log"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sync/semaphore"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/ctrlog"
	"fairlead.run/internal/image/database"
	"fairlead.run/internal/image/inflight"
	"fairlead.run/internal/image/keeper"
	"fairlead.run/internal/image/layer"
	"fairlead.run/internal/image/staging"
)

const (
	// namespace is containerd's, of which the libraries demand one.
	namespace = "fairlead"
	// snapshotterKey is a name that containerd's unpacker compares with: with
	// any other it would not convert whiteouts in parallel unpacking.
	snapshotterKey = "overlayfs"
)

// Store holds the images of one node. Its methods may be called concurrently.
type Store struct {
	libraries
	cfg     Config
	log     *slog.Logger
	entry   *log.Entry    // the same, as containerd's libraries want it
	held    keeper.Leases // of leases, those of this process
	slots   slots
	blobs   layer.Locks
	flying  inflight.Set[Image]
	uses    uses
	records sync.Mutex // serialises changes of image records and of list
	list    atomic.Pointer[index]
	owed    atomic.Bool // names are gone, and what they kept is not collected yet
}

// libraries are containerd's, and what they keep.
type libraries struct {
	bolt    *bolt.DB
	files   *staging.Blobs
	overlay snapshots.Snapshotter // closed by Close; everything else goes through meta
	meta    *metadata.DB
	leases  leases.Manager

	// collecting is held for writing by collections, and for reading by update.
	// Who has a transaction and asks for one of the libraries' locks would else
	// wait behind a collection that waits for it, behind one who has the lock
	// and asks for a transaction.
	collecting sync.RWMutex
}

// update lets f make its changes in one transaction, which is one flush.
func (l *libraries) update(ctx context.Context, f func(ctx context.Context) error) error {
	l.collecting.RLock()
	defer l.collecting.RUnlock()
	return l.meta.Update(func(tx *bolt.Tx) error { return f(boltutil.WithTransaction(ctx, tx)) })
}

// slots bound work over all pulls of the store.
type slots struct {
	downloads *semaphore.Weighted
	unpacks   *semaphore.Weighted
}

// Open opens the store below cfg.Root, making it if there is none. Only one
// process can have it open.
//
// The caller then has to call SyncUses with the containers that exist; until
// it has, nothing is removed from disk.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg:   cfg,
		log:   cfg.Logger,
		entry: ctrlog.New(cfg.Logger),
		slots: slots{
			downloads: semaphore.NewWeighted(int64(cfg.MaxConcurrentDownloads)),
			unpacks:   semaphore.NewWeighted(int64(cfg.MaxConcurrentUnpacks)),
		},
	}
	s.uses.init()
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("open image store %s: %w", cfg.Root, err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	// Without the folder for blobs, the content store would stop a collection
	// before it gets to broken downloads.
	for _, dir := range []string{s.cfg.Root, s.contentDir(), filepath.Join(s.contentDir(), "blobs", "sha256"), s.snapshotDir(), s.emptyDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o700); err != nil { // an older one may be wider
			return err
		}
	}
	if err := os.Chmod(s.emptyDir(), 0o755); err != nil { // it is the root of a layerless image
		return err
	}
	if s.bolt, err = database.Open(filepath.Join(s.cfg.Root, "metadata.db")); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeFiles())
		}
	}()
	if err := database.Verify(filepath.Join(s.snapshotDir(), "metadata.db")); err != nil {
		return err
	}
	if s.files, err = staging.Open(s.contentDir()); err != nil {
		return err
	}
	// Removed layers become folders that nobody knows; garbage collection takes
	// them away after it has let go of its locks.
	if s.overlay, err = overlay.NewSnapshotter(s.snapshotDir(), overlay.AsynchronousRemove, overlay.WithUpperdirLabel); err != nil {
		return err
	}
	s.meta = metadata.NewDB(s.bolt, s.files, map[string]snapshots.Snapshotter{snapshotterKey: s.overlay})
	ctx = s.with(ctx)
	if err := s.meta.Init(ctx); err != nil {
		return err
	}
	s.meta.RegisterCollectibleResource(usesType, &s.uses)
	s.leases = metadata.NewLeaseManager(s.meta)
	if s.cfg.Untouched {
		return s.refresh(ctx)
	}
	if err := s.dropLeases(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit(leasesDropped); err != nil {
		return err
	}
	if err := s.sweep(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit(swept); err != nil {
		return err
	}
	return s.refresh(ctx)
}

// dropLeases forgets the leases of pulls that died with an earlier process.
// What they protected goes with the next collection.
func (s *Store) dropLeases(ctx context.Context) error {
	old, err := s.leases.List(ctx)
	if err != nil {
		return err
	}
	for _, l := range old {
		if err := s.leases.Delete(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// endLimit is how long pulls may take to clean up when the store is closed.
const endLimit = 10 * time.Second

// Close ends the pulls in flight, waits for them and closes the files. These
// stay open where a pull does not end: closing them would wait for it.
func (s *Store) Close() error {
	err := s.flying.Close(endLimit)
	if err == nil {
		err = s.closeFiles()
	}
	if err != nil {
		return fmt.Errorf("close image store %s: %w", s.cfg.Root, err)
	}
	return nil
}

func (s *Store) closeFiles() error {
	var errs []error
	if s.overlay != nil {
		errs = append(errs, s.overlay.Close())
	}
	if s.bolt != nil {
		errs = append(errs, s.bolt.Close())
	}
	return errors.Join(errs...)
}

func (s *Store) contentDir() string  { return filepath.Join(s.cfg.Root, "content") }
func (s *Store) snapshotDir() string { return filepath.Join(s.cfg.Root, "snapshots") }
func (s *Store) emptyDir() string    { return filepath.Join(s.cfg.Root, "empty") }

// with adds what containerd's libraries expect to find in a context.
func (s *Store) with(ctx context.Context) context.Context {
	return log.WithLogger(namespaces.WithNamespace(ctx, namespace), s.entry)
}

func (s *Store) content() content.Store           { return s.meta.ContentStore() }
func (s *Store) snapshots() snapshots.Snapshotter { return s.meta.Snapshotter(snapshotterKey) }
func (s *Store) images() images.Store             { return metadata.NewImageStore(s.meta) }
