package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/refs"
)

// index is the cache of all images: what List and Get read. It is replaced as
// a whole and never changed.
type index struct {
	byID   map[string]*Image
	byName map[string]*Image   // by the record's name
	names  map[string][]string // image id -> names of its records
	loaded map[string]*loaded  // by loadKey, so that a refresh reads only what is new
	broken map[string]bool     // by loadKey; logged already
}

// Get returns the image with that name or id. Beginnings of ids count, if one
// image alone has them and they are at least 12 digits long.
func (s *Store) Get(_ context.Context, ref string) (Image, error) {
	img, err := s.list.Load().find(ref)
	if err != nil {
		return Image{}, err
	}
	return img.clone(), nil
}

// Filter selects images for List. The zero Filter selects all.
type Filter struct {
	Ref string // a name or an id; no match is an empty list, not an error
}

// List returns the images that the filter selects, by name.
func (s *Store) List(_ context.Context, f Filter) ([]Image, error) {
	idx := s.list.Load()
	if f.Ref != "" {
		img, err := idx.find(f.Ref)
		switch {
		case errors.Is(err, errdefs.ErrNotFound):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return []Image{img.clone()}, nil
	}
	all := make([]Image, 0, len(idx.byID))
	for _, img := range idx.byID {
		all = append(all, img.clone())
	}
	slices.SortFunc(all, func(a, b Image) int { return strings.Compare(sortKey(&a), sortKey(&b)) })
	return all, nil
}

// sortKey puts images with a tag first.
func sortKey(i *Image) string {
	switch {
	case len(i.RepoTags) > 0:
		return "0" + i.RepoTags[0] + i.ID
	case len(i.RepoDigests) > 0:
		return "1" + i.RepoDigests[0] + i.ID
	}
	return "2" + i.ID
}

func (x *index) find(ref string) (*Image, error) {
	if refs.IsID(ref) {
		if img, ok := x.byID[refs.FullID(ref)]; ok {
			return img, nil
		}
		return nil, fmt.Errorf("image %s: not on this node: %w", ref, errdefs.ErrNotFound)
	}
	name, err := refs.Normalize(ref)
	if err == nil {
		if img, ok := x.byName[name]; ok {
			return img, nil
		}
	}
	if img, ok := x.byPrefix(ref); ok {
		return img, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("image %s: not on this node; pull or import it first: %w", name, errdefs.ErrNotFound)
}

// byPrefix finds an image by a beginning of its id, as people type it.
func (x *index) byPrefix(ref string) (*Image, bool) {
	hex := strings.TrimPrefix(ref, "sha256:")
	if len(hex) < 12 || strings.Trim(hex, "0123456789abcdef") != "" {
		return nil, false
	}
	var found *Image
	for id, img := range x.byID {
		if strings.HasPrefix(id, "sha256:"+hex) {
			if found != nil {
				return nil, false
			}
			found = img
		}
	}
	return found, found != nil
}

// refresh reads the records again and publishes a new index.
func (s *Store) refresh(ctx context.Context) error {
	recs, err := s.images().List(s.with(ctx))
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	old := s.list.Load()
	if old == nil {
		old = &index{}
	}
	idx := &index{
		byID: map[string]*Image{}, byName: map[string]*Image{},
		names: map[string][]string{}, loaded: map[string]*loaded{}, broken: map[string]bool{},
	}
	for _, rec := range recs {
		key := loadKey(rec)
		l, err := s.reload(ctx, rec, idx, old)
		if err != nil {
			// The image is of no use but must not take the others with it.
			// A pull repairs it, a removal by name takes it away.
			if !idx.broken[key] && !old.broken[key] {
				s.log.WarnContext(ctx, "image left out of the list: it is incomplete", "image", rec.Name, "error", err)
			}
			idx.broken[key] = true
			continue
		}
		idx.loaded[key] = l
		idx.add(rec, l, refs.Pinned(s.cfg.Pinned, rec.Name))
	}
	for _, img := range idx.byID {
		slices.Sort(img.RepoTags)
		slices.Sort(img.RepoDigests)
	}
	s.list.Store(idx)
	return nil
}

// reload takes what was read before, now or for the index before, and else reads.
func (s *Store) reload(ctx context.Context, rec images.Image, now, old *index) (*loaded, error) {
	key := loadKey(rec)
	if l := now.loaded[key]; l != nil {
		return l, nil
	}
	if l := old.loaded[key]; l != nil {
		return l, nil
	}
	return s.load(ctx, s.content(), rec)
}

func (x *index) add(rec images.Image, l *loaded, pinned bool) {
	img := x.byID[l.image.ID]
	if img == nil {
		c := l.image.clone()
		img = &c
		x.byID[img.ID] = img
	}
	switch refs.KindOf(rec.Name) {
	case refs.Tag:
		img.RepoTags = append(img.RepoTags, rec.Name)
	case refs.Digest:
		img.RepoDigests = append(img.RepoDigests, rec.Name)
	}
	img.Pinned = img.Pinned || pinned
	x.byName[rec.Name] = img
	x.names[img.ID] = append(x.names[img.ID], rec.Name)
}
