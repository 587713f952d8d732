package image

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/pkg/gc"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/fault"
	"fairlead.run/internal/image/refs"
)

// Layers are an image and the directories that it unpacked to.
type Layers struct {
	Image Image
	Dirs  []string // topmost first, as overlay's lowerdir wants them; never empty
}

// usesType is the collector's own kind of node; containerd leaves 0x10 to 0x1f
// to its users. No node of it exists: it only adds roots of other kinds.
const usesType = gc.ResourceType(0x10)

// upperdirLabel is where the overlay snapshotter tells a layer's directory.
const upperdirLabel = "containerd.io/snapshot/overlay.upperdir"

// uses says which container uses which images. Garbage collection takes the
// images in it as roots. It is memory only: the caller's records hold the same
// fact, and SyncUses rebuilds it from them.
type uses struct {
	mu       sync.Mutex
	images   map[string][]string // container id -> image ids, each once
	synced   bool                // false until SyncUses; nothing may be collected before
	released map[string]bool     // container ids that Release named before SyncUses
}

func (u *uses) init() { u.images, u.released = map[string][]string{}, map[string]bool{} }

// add notes that the container uses an image. The caller has the lock.
func (u *uses) add(containerID, id string) {
	if !slices.Contains(u.images[containerID], id) {
		u.images[containerID] = append(u.images[containerID], id)
	}
}

// Use resolves a name or an id, says that the container uses that image, and
// returns it with the directories of its layers. Until Release, no Remove takes
// them from disk. A container may use several images. It touches no file.
func (s *Store) Use(_ context.Context, ref, containerID string) (Layers, error) {
	if containerID == "" {
		return Layers{}, fmt.Errorf("use image %s: a container id is needed: %w", ref, errdefs.ErrInvalidArgument)
	}
	// Looked up and noted under one lock, so that a removal either takes the
	// image off the list before, or finds it used.
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	img, err := s.list.Load().find(ref)
	if err != nil {
		return Layers{}, fmt.Errorf("use image for container %s: %w", containerID, err)
	}
	s.uses.add(containerID, img.ID)
	return Layers{Image: img.clone(), Dirs: slices.Clone(img.dirs)}, nil
}

// Release says that the container is gone. Its images stay until somebody
// removes them; where somebody already has, layers go with the next collection.
func (s *Store) Release(_ context.Context, containerID string) error {
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	delete(s.uses.images, containerID)
	if !s.uses.synced {
		s.uses.released[containerID] = true
	}
	return nil
}

// SyncUses adds what the caller's records say: container id to image ids. Call
// it once after Open. It then collects what is left over from pulls and
// removals that were cut short.
//
// Requests may be served before: what Use and Release said since Open stands.
//
// What is left of an image that was removed while it was in use stays.
func (s *Store) SyncUses(ctx context.Context, images map[string][]string) error {
	s.uses.set(images)
	return s.collect(ctx)
}

func (u *uses) set(images map[string][]string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for container, ids := range images {
		for _, id := range ids {
			if !u.released[container] {
				u.add(container, refs.FullID(id))
			}
		}
	}
	u.released = nil
	u.synced = true
}

func (u *uses) known() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.synced
}

// collect frees blobs and layers that no image, pull or container needs.
func (s *Store) collect(ctx context.Context) error {
	if !s.uses.known() {
		return nil // SyncUses will
	}
	// A collection that stops half-way leaves nothing wrong but much undone.
	ctx = s.with(context.WithoutCancel(ctx))
	// The first round can fail to remove layers without a word, on a full disk
	// for instance, where removing blobs is what makes room for the record.
	for range 2 {
		if err := s.collectOnce(ctx); err != nil {
			return fmt.Errorf("free unused layers in %s: %w", s.cfg.Root, fault.Local(err))
		}
		if strays, err := s.noticeStrays(ctx); err != nil || !strays {
			return err
		}
	}
	return nil
}

func (s *Store) collectOnce(ctx context.Context) error {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	_, err := s.meta.GarbageCollect(ctx)
	return err
}

// StartCollection is part of metadata.Collector.
func (u *uses) StartCollection(context.Context) (metadata.CollectionContext, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ids := make(map[string]bool, len(u.images))
	for _, used := range u.images {
		for _, id := range used {
			ids[id] = true
		}
	}
	return usedRoots(ids), nil
}

// ReferenceLabel is part of metadata.Collector.
func (u *uses) ReferenceLabel() string { return "" }

// usedRoots is the set of image ids in use while one collection runs. An image
// id is the digest of the configuration blob, and that blob's label leads on
// to the layers.
type usedRoots map[string]bool

func (r usedRoots) All(func(gc.Node)) {}

func (r usedRoots) Active(ns string, root func(gc.Node)) {
	for id := range r {
		root(gc.Node{Type: metadata.ResourceContent, Namespace: ns, Key: id})
	}
}

func (r usedRoots) Leased(string, string, func(gc.Node)) {}
func (r usedRoots) Remove(gc.Node)                       {}
func (r usedRoots) Cancel() error                        { return nil }
func (r usedRoots) Finish() error                        { return nil }

// stack finds the directories of a stack of layers, topmost first, and their
// size on disk. It fails if a layer is missing.
func (s *Store) stack(ctx context.Context, chainID string) (dirs []string, size int64, err error) {
	if chainID == "" {
		return []string{s.emptyDir()}, 0, nil
	}
	ctx = s.with(ctx)
	for at := chainID; at != ""; {
		info, err := s.snapshots().Stat(ctx, at)
		if err != nil {
			return nil, 0, fmt.Errorf("find layer %s: %w", at, fault.Local(err))
		}
		u, err := s.snapshots().Usage(ctx, at)
		if err != nil {
			return nil, 0, fmt.Errorf("measure layer %s: %w", at, fault.Local(err))
		}
		dir := info.Labels[upperdirLabel]
		// The label could only ever be wrong if an image had planted its own;
		// that would hand it any directory of the host.
		if rel, err := filepath.Rel(s.snapshotDir(), dir); err != nil || !filepath.IsLocal(rel) {
			return nil, 0, fmt.Errorf("layer %s claims the directory %q, outside of the store: %w", at, dir, errdefs.ErrInternal)
		}
		dirs = append(dirs, dir)
		size += u.Size
		at = info.Parent
	}
	return dirs, size, nil
}

func chainOf(diffIDs []digest.Digest) string {
	if len(diffIDs) == 0 {
		return ""
	}
	return identity.ChainID(diffIDs).String()
}
