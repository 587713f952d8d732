package garbage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CollectImages removes the images whose time is over, and more if their file
// system is too full.
func (c *Collector) CollectImages(ctx context.Context) error {
	c.images.Lock()
	defer c.images.Unlock()
	list, asked, err := c.look(ctx)
	if err != nil {
		return err
	}
	removed, err := each(ctx, Expired(list, c.cfg.ImagePolicy, asked), c.removeImage)
	list = without(list, removed)
	errs := []error{err}
	free, err := c.toFree(ctx)
	errs = append(errs, err)
	list, err = c.free(ctx, list, free)
	errs = append(errs, err)
	c.left(list, asked)
	return errors.Join(errs...)
}

// DeleteUnusedImages removes all images that may go, because the disk is
// needed. It returns how many bytes they had.
func (c *Collector) DeleteUnusedImages(ctx context.Context) (freed uint64, err error) {
	c.images.Lock()
	defer c.images.Unlock()
	list, asked, err := c.look(ctx)
	if err != nil {
		return 0, err
	}
	removed, err := each(ctx, Removable(list, c.cfg.ImagePolicy, time.Now()), c.removeImage)
	for _, i := range removed {
		freed += i.Size
	}
	c.left(without(list, removed), asked)
	return freed, err
}

// look lists images, and who uses them.
func (c *Collector) look(ctx context.Context) ([]Image, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	asked := time.Now()
	got, err := c.cfg.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, asked, fmt.Errorf("list images: %w", err)
	}
	// After the images: what a container was made from since then is in the list.
	containers, err := c.containers(ctx)
	if err != nil {
		return nil, asked, err
	}
	used := map[string]bool{}
	for _, ct := range containers {
		for _, name := range namesOf(ct) {
			used[name] = true
		}
	}
	for _, name := range c.cfg.Keep() {
		used[name] = true
	}
	delete(used, "")
	for _, i := range got.GetImages() {
		// Its container is still to be made.
		if at := c.cfg.Needed(i.GetId()); !at.IsZero() && asked.Sub(at) < max(c.cfg.ImagePolicy.MinAge, DefaultImagePolicy.MinAge) {
			used[i.GetId()] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.seen.see(got.GetImages(), used, asked)
	for n, i := range list {
		if at := c.cfg.Needed(i.ID); at.After(i.Used) {
			list[n].Used = at
		}
	}
	return list, asked, nil
}

func (c *Collector) toFree(ctx context.Context) (uint64, error) {
	if c.cfg.ImagePolicy.HighPercent == 100 {
		return 0, nil
	}
	within, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	info, err := c.cfg.Images.ImageFsInfo(within, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return 0, fmt.Errorf("ask for the file system of images: %w", err)
	}
	if len(info.GetImageFilesystems()) == 0 {
		return 0, errors.New("ask for the file system of images: the runtime names none")
	}
	path := info.GetImageFilesystems()[0].GetFsId().GetMountpoint()
	disk, err := c.cfg.Measure(ctx, path)
	if err != nil {
		return 0, err
	}
	if disk.Capacity == 0 {
		return 0, fmt.Errorf("the file system of images at %s has a capacity of 0", path)
	}
	return ToFree(disk, c.cfg.ImagePolicy), nil
}

// free removes images until they have had so many bytes. Those that cannot be
// removed are made up for by others. It returns what is left.
func (c *Collector) free(ctx context.Context, list []Image, want uint64) ([]Image, error) {
	if want == 0 {
		return list, nil
	}
	may := Removable(list, c.cfg.ImagePolicy, time.Now())
	var freed uint64
	var errs []error
	for freed < want && len(may) > 0 && ctx.Err() == nil {
		n := Enough(may, want-freed)
		removed, err := each(ctx, may[:n], c.removeImage)
		for _, i := range removed {
			freed += i.Size
		}
		errs = append(errs, err)
		list, may = without(list, removed), may[n:]
	}
	if freed < want {
		errs = append(errs, notFreed{fmt.Errorf(
			"the disk of images is used to %d%% or more: %d MiB have to be freed for %d%%, and images that may go had %d MiB; remove what fills the disk beside them, or give it more space",
			c.cfg.ImagePolicy.HighPercent, mebibytes(want), c.cfg.ImagePolicy.LowPercent, mebibytes(freed))})
	}
	return list, errors.Join(errs...)
}

func mebibytes(n uint64) uint64 { return uint64(math.Ceil(float64(n) / (1 << 20))) }

func without(list, removed []Image) []Image {
	return slices.DeleteFunc(list, func(i Image) bool {
		return slices.ContainsFunc(removed, func(r Image) bool { return r.ID == i.ID })
	})
}

func (c *Collector) removeImage(ctx context.Context, i Image) error {
	_, err := c.cfg.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: i.ID}})
	if err = gone(err); err != nil {
		return fmt.Errorf("remove image %s: %w", i.ID, err)
	}
	c.cfg.Log.Info("Removed an image that no container uses.", "image", i.ID, "bytes", i.Size)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, i.ID)
	return nil
}

func (c *Collector) left(list []Image, asked time.Time) {
	ids := make([]string, len(list))
	for n, i := range list {
		ids[n] = i.ID
	}
	c.cfg.Left(ids, asked)
}
