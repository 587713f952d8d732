// Package keeper is the side of the image store that an audit looks at: layers,
// blobs and leases that nothing leads to, and those that are damaged. It pulls
// and unpacks nothing.
package keeper

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Config is what a Keeper looks at.
type Config struct {
	Store      Store
	Content    content.Store
	Images     images.Store
	Leases     leases.Manager
	Snapshots  snapshots.Snapshotter // by their names
	Unpacked   snapshots.Snapshotter // the same, as they are on disk
	ContentDir string
	LayerDir   string
	// VerifyContent reads every blob and compares it with its digest.
	VerifyContent bool
}

// Store is what a Keeper asks of the image store itself.
type Store interface {
	// Context adds what containerd's libraries expect to find.
	Context(ctx context.Context) context.Context
	// Load says where the layers of an image are, or why it is of no use.
	Load(ctx context.Context, rec images.Image) (dirs []string, err error)
	// Uses are the ids of images by the containers that use them. ok is false
	// before the store was told of those of the past.
	Uses() (uses map[string][]string, ok bool)
	// Keep says that the container uses the image, Free that it uses none.
	Keep(ctx context.Context, image, container string) error
	Free(ctx context.Context, container string) error
	// Collect frees what nothing leads to.
	Collect(ctx context.Context) error
	// Leased are the leases of what is under way.
	Leased() *Leases
}

// Keeper implements pod.Keeper.
type Keeper struct{ cfg Config }

var _ pod.Keeper = Keeper{}

// New makes a keeper. Everything in the configuration is needed.
func New(cfg Config) Keeper { return Keeper{cfg} }

// Held lists what is of no use or damaged, and which container uses an image.
// While something is being pulled or imported, what is of no use cannot be told
// from what is about to be named, and is left out.
func (k Keeper) Held(ctx context.Context, records []*pod.Record) ([]pod.Held, error) {
	ctx = k.cfg.Store.Context(ctx)
	busy := k.cfg.Store.Leased().Any()
	out := k.heldUses(records)
	ls, err := k.cfg.Leases.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	for _, l := range ls {
		if !k.cfg.Store.Leased().Has(l.ID) {
			out = append(out, pod.Held{Kind: pod.KindLease, Name: l.ID})
		}
	}
	s, err := k.read(ctx, records)
	if err != nil {
		return nil, err
	}
	out = append(out, k.brokenImages(ctx, s)...)
	damaged, err := k.damagedBlobs(ctx, s)
	if err != nil {
		return nil, err
	}
	out = append(out, damaged...)
	if busy || k.cfg.Store.Leased().Any() {
		return out, nil
	}
	surplus, err := k.surplus(ctx, s)
	return append(out, surplus...), err
}

// heldUses leaves a container out of whose images one is not kept.
func (k Keeper) heldUses(records []*pod.Record) []pod.Held {
	out := []pod.Held{}
	uses, ok := k.cfg.Store.Uses()
	if !ok {
		return out
	}
	for _, r := range records {
		for _, c := range r.Containers {
			lacks := func(id string) bool { return !slices.Contains(uses[string(c.ID)], imageID(id).String()) }
			if slices.ContainsFunc(c.Images(), lacks) {
				delete(uses, string(c.ID))
			}
		}
	}
	for by := range uses {
		out = append(out, pod.Held{Kind: pod.KindUse, Name: by, Owner: by})
	}
	return out
}

// Wants says that the images of containers are kept.
func (k Keeper) Wants(r *pod.Record) (out []pod.Held) {
	if _, ok := k.cfg.Store.Uses(); !ok {
		return nil
	}
	for _, c := range r.Containers {
		if c.State == pod.Created || c.State == pod.Running {
			out = append(out, pod.Held{Kind: pod.KindUse, Name: string(c.ID), Owner: string(c.ID)})
		}
	}
	return out
}

// Drop frees what is of no use.
func (k Keeper) Drop(ctx context.Context, h pod.Held) error {
	switch h.Kind {
	case pod.KindUse:
		return k.cfg.Store.Free(ctx, h.Owner)
	case pod.KindLease:
		return k.dropLease(ctx, h.Name)
	case pod.KindSnapshot, pod.KindBlob:
		return k.dropSurplus(ctx, h)
	}
	return fmt.Errorf("remove %s %s: the image store has none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}

// Restore keeps the images of a container again, or lets go of a damaged blob.
func (k Keeper) Restore(ctx context.Context, r *pod.Record, h pod.Held) error {
	switch h.Kind {
	case pod.KindUse:
		if c := r.Container(pod.ContainerID(h.Owner)); c != nil {
			return k.keep(ctx, c)
		}
	case pod.KindBlob:
		return k.dropDamaged(ctx, digest.Digest(h.Name))
	}
	return fmt.Errorf("put back %s %s: remove the image and pull it again: %w", h.Kind, h.Name, errdefs.ErrPrecondition)
}

func (k Keeper) keep(ctx context.Context, c *pod.Container) error {
	for _, id := range c.Images() {
		if err := k.cfg.Store.Keep(ctx, id, string(c.ID)); err != nil {
			return err
		}
	}
	return nil
}

// dropDamaged lets go of a layer as it was fetched. A document leads on to
// others, and those would be collected under the containers that use them.
func (k Keeper) dropDamaged(ctx context.Context, d digest.Digest) error {
	ctx = k.cfg.Store.Context(ctx)
	info, err := k.cfg.Content.Info(ctx, d)
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at blob %s: %w", d, err)
	}
	if blobs, layers := references(info.Labels); len(blobs)+len(layers) > 0 {
		return fmt.Errorf("delete blob %s: it leads on to the layers of an image; remove its containers and the image, and pull it again: %w", d, errdefs.ErrPrecondition)
	}
	if err := k.cfg.Content.Delete(ctx, d); err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("delete blob %s: %w", d, err)
	}
	// The record alone is gone by now; the file goes with the next collection.
	return k.cfg.Store.Collect(ctx)
}

func (k Keeper) dropLease(ctx context.Context, id string) error {
	ctx = k.cfg.Store.Context(ctx)
	ls, err := k.cfg.Leases.List(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, l := range ls {
		if l.ID != id || k.cfg.Store.Leased().Has(id) {
			continue
		}
		if err := k.cfg.Leases.Delete(ctx, l); err != nil && !cerrdefs.IsNotFound(err) {
			return fmt.Errorf("delete lease %s: %w", id, err)
		}
	}
	return k.cfg.Store.Collect(ctx)
}

// brokenImages are names of images that cannot be used.
func (k Keeper) brokenImages(ctx context.Context, s *state) (out []pod.Held) {
	for _, rec := range s.records {
		dirs, err := k.cfg.Store.Load(ctx, rec)
		if err != nil {
			out = append(out, pod.Held{Kind: pod.KindImage, Name: rec.Name, Fault: err.Error()})
			continue
		}
		for _, dir := range dirs {
			if _, err := os.Stat(dir); err != nil {
				out = append(out, pod.Held{Kind: pod.KindSnapshot, Name: dir, Fault: err.Error()})
			}
		}
	}
	return out
}

// damagedBlobs are those whose file is missing, cut, or not what it should be.
func (k Keeper) damagedBlobs(ctx context.Context, s *state) (out []pod.Held, err error) {
	for _, info := range s.blobs {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if fault := k.damage(info); fault != "" {
			out = append(out, pod.Held{Kind: pod.KindBlob, Name: info.Digest.String(), Fault: fault})
		}
	}
	return out, nil
}

func (k Keeper) damage(info content.Info) string {
	f, err := os.Open(k.blobFile(info.Digest))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	switch {
	case err != nil:
		return err.Error()
	case st.Size() != info.Size:
		return fmt.Sprintf("it has %d bytes and should have %d", st.Size(), info.Size)
	case !k.cfg.VerifyContent:
		return ""
	}
	v := info.Digest.Verifier()
	if _, err := io.Copy(v, f); err != nil {
		return err.Error()
	}
	if !v.Verified() {
		return "its content has another digest"
	}
	return ""
}

func (k Keeper) blobFile(d digest.Digest) string {
	return filepath.Join(k.cfg.ContentDir, "blobs", d.Algorithm().String(), d.Encoded())
}

// surplus is what nothing leads to.
func (k Keeper) surplus(ctx context.Context, s *state) (out []pod.Held, err error) {
	blobs, layers := s.reach()
	for d := range s.blobs {
		if !blobs[d] {
			out = append(out, pod.Held{Kind: pod.KindBlob, Name: d.String()})
		}
	}
	for key := range s.parents {
		if !layers[key] {
			out = append(out, pod.Held{Kind: pod.KindSnapshot, Name: key})
		}
	}
	files, err := filepath.Glob(filepath.Join(k.cfg.ContentDir, "blobs", "*", "*"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		d := digest.NewDigestFromEncoded(digest.Algorithm(filepath.Base(filepath.Dir(f))), filepath.Base(f))
		if _, known := s.blobs[d]; !known {
			out = append(out, pod.Held{Kind: pod.KindBlob, Name: d.String()})
		}
	}
	folders, err := k.strayFolders(ctx)
	return append(out, folders...), err
}

// upperdirLabel is where the overlay snapshotter tells a layer's directory.
const upperdirLabel = "containerd.io/snapshot/overlay.upperdir"

// strayFolders are unpacked layers that the snapshotter does not know.
func (k Keeper) strayFolders(ctx context.Context) (out []pod.Held, err error) {
	known := map[string]bool{}
	err = k.cfg.Unpacked.Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		known[filepath.Dir(i.Labels[upperdirLabel])] = true
		return nil
	})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	base := filepath.Join(k.cfg.LayerDir, "snapshots")
	entries, err := os.ReadDir(base)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	for _, e := range entries {
		if dir := filepath.Join(base, e.Name()); !known[dir] {
			out = append(out, pod.Held{Kind: pod.KindSnapshot, Name: dir})
		}
	}
	return out, nil
}

// dropSurplus lets the collection take what nothing leads to, and then what is
// on nobody's record.
func (k Keeper) dropSurplus(ctx context.Context, h pod.Held) error {
	ctx = k.cfg.Store.Context(ctx)
	if err := k.cfg.Store.Collect(ctx); err != nil {
		return err
	}
	if k.cfg.Store.Leased().Any() {
		return fmt.Errorf("remove %s %s: an image is being pulled or imported; try again: %w", h.Kind, h.Name, errdefs.ErrUnavailable)
	}
	switch {
	case h.Kind == pod.KindSnapshot && strings.HasPrefix(h.Name, "/"):
		if c, ok := k.cfg.Unpacked.(snapshots.Cleaner); ok {
			if err := c.Cleanup(ctx); err != nil && !cerrdefs.IsNotFound(err) {
				return fmt.Errorf("remove layers that are not on record: %w", err)
			}
		}
	case h.Kind == pod.KindBlob:
		d := digest.Digest(h.Name)
		if _, err := k.cfg.Content.Info(ctx, d); err == nil {
			return nil // the collection found a use for it
		}
		if err := os.Remove(k.blobFile(d)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove blob: %w", err)
		}
	}
	return nil
}
