package garbage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImagePolicy says when images go. The values are those of a kubelet's
// configuration.
type ImagePolicy struct {
	// HighPercent of its file system has to be used before images are removed,
	// until LowPercent is. 100 means never.
	HighPercent, LowPercent int
	MinAge                  time.Duration // since the image was first seen
	MaxAge                  time.Duration // since it was last used; 0 means any
}

// DefaultImagePolicy is what a kubelet takes where nothing is said.
var DefaultImagePolicy = ImagePolicy{HighPercent: 85, LowPercent: 80, MinAge: 2 * time.Minute}

func (p ImagePolicy) check() error {
	switch {
	case p.HighPercent < 0 || p.HighPercent > 100 || p.LowPercent < 0:
		return fmt.Errorf("image garbage collection: thresholds of %d and %d percent are not between 0 and 100", p.HighPercent, p.LowPercent)
	case p.LowPercent >= p.HighPercent:
		return fmt.Errorf("image garbage collection: the low threshold of %d percent is not below the high one of %d", p.LowPercent, p.HighPercent)
	case p.MinAge < 0 || p.MaxAge < 0:
		return fmt.Errorf("image garbage collection: ages of %s and %s are negative", p.MinAge, p.MaxAge)
	case p.MaxAge > 0 && p.MaxAge <= p.MinAge:
		return fmt.Errorf("image garbage collection: the maximum age of %s is not above the minimum age of %s", p.MaxAge, p.MinAge)
	}
	return nil
}

// Image is what is known of an image.
type Image struct {
	ID     string
	Size   uint64
	Pinned bool
	InUse  bool
	Seen   time.Time // first
	Used   time.Time // last; zero if never since Seen
}

// idle is since when nobody has used it.
func (i Image) idle() time.Time {
	if i.Used.Before(i.Seen) {
		return i.Seen
	}
	return i.Used
}

// Expired are the images that nobody has used for longer than the maximum age.
func Expired(list []Image, p ImagePolicy, now time.Time) []Image {
	if p.MaxAge == 0 {
		return nil
	}
	return slices.DeleteFunc(Removable(list, p, now), func(i Image) bool { return now.Sub(i.idle()) <= p.MaxAge })
}

// Removable are the images that may go: the least recently used first, and of
// those that are alike the first that came.
func Removable(list []Image, p ImagePolicy, now time.Time) []Image {
	var out []Image
	for _, i := range list {
		if !i.Pinned && !i.InUse && now.Sub(i.Seen) >= p.MinAge && i.Used.Before(now) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b Image) int {
		return cmp.Or(a.Used.Compare(b.Used), a.Seen.Compare(b.Seen), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Disk is a file system, in bytes. Available is what is left for anybody but
// root.
type Disk struct{ Capacity, Available uint64 }

// Used is how much of it is used, in percent.
func (d Disk) Used() int {
	if d.Capacity == 0 {
		return 0
	}
	return 100 - int(float64(min(d.Available, d.Capacity))/float64(d.Capacity)*100)
}

// ToFree is how many bytes have to go; none below the high threshold.
func ToFree(d Disk, p ImagePolicy) uint64 {
	if d.Capacity == 0 || p.HighPercent >= 100 || d.Used() < p.HighPercent {
		return 0
	}
	want := d.Capacity / 100 * uint64(100-p.LowPercent)
	if d.Available >= want {
		return 0
	}
	return want - d.Available
}

// Enough is how many of the first images have the bytes to free: all, if they
// do not.
func Enough(list []Image, free uint64) int {
	var sum uint64
	for n, i := range list {
		if sum >= free {
			return n
		}
		sum += i.Size
	}
	return len(list)
}

// namesOf are all by which a container may name its image.
func namesOf(c *runtimeapi.Container) []string {
	return []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()}
}

// tracked remembers images between two passes.
type tracked map[string]Image

// see takes in a listing. used says by which names images are in use.
func (t tracked) see(list []*runtimeapi.Image, used map[string]bool, now time.Time) []Image {
	present := map[string]bool{}
	var out []Image
	for _, i := range list {
		known, ok := t[i.GetId()]
		if !ok {
			known = Image{ID: i.GetId(), Seen: now}
		}
		known.Size, known.Pinned, known.InUse = i.GetSize(), i.GetPinned(), uses(i, used)
		if known.InUse {
			known.Used = now
		}
		t[known.ID], present[known.ID] = known, true
		out = append(out, known)
	}
	for id := range t {
		if !present[id] {
			delete(t, id)
		}
	}
	return out
}

func uses(i *runtimeapi.Image, used map[string]bool) bool {
	return used[i.GetId()] || slices.ContainsFunc(slices.Concat(i.GetRepoTags(), i.GetRepoDigests()), func(n string) bool { return used[n] })
}
