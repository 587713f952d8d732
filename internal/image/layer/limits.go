package layer

import (
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/disk"
)

// Limits bound what one layer may do to this node, together with what its image
// may take of time. They stop hostile images, not large ones.
type Limits struct {
	LayerEntries int64 // files, folders and links that one layer makes; default 2 million
	LayerBytes   int64 // size of one layer, compressed and unpacked; default 256 GiB, and never more than the disk can spare
}

// bound is how many bytes a layer may unpack to, and how many files, folders and
// links it may make.
type bound struct {
	bytes, entries int64
	isDisk         bool   // bytes is what the disk could spare when the layer was begun
	fewFiles       bool   // entries is
	dir            string // on the disk
}

// bound is the configured limit, or what the disk can spare if that is less.
func (o Options) bound() bound {
	b := bound{bytes: o.Limits.LayerBytes, entries: o.Limits.LayerEntries, dir: o.Dir}
	if free := disk.Spare(o.Dir); free < b.bytes {
		b.bytes, b.isDisk = free, true
	}
	if free := disk.SpareFiles(o.Dir); free < b.entries {
		b.entries, b.fewFiles = free, true
	}
	return b
}

// tooMany is the error of a layer that makes more files.
func (b bound) tooMany() error {
	if b.fewFiles {
		return fmt.Errorf("it makes more than the %d files, folders and links that the disk of %s can spare; remove images that are not needed, or make a file system with more inodes: %w", b.entries, b.dir, errdefs.ErrExhausted)
	}
	return fmt.Errorf("it makes more than %d files, folders and links, the limit of a layer (images.max_layer_entries): %w", b.entries, errdefs.ErrExhausted)
}

// exceeded is the error of a layer that is larger.
func (b bound) exceeded() error {
	if b.isDisk {
		return b.full()
	}
	return fmt.Errorf("it unpacks to more than %d bytes, the limit of a layer (images.max_layer_bytes): %w", b.bytes, errdefs.ErrExhausted)
}

// full is the error of a layer for which the disk has no room.
func (b bound) full() error {
	return fmt.Errorf("it unpacks to more than what the disk of %s can spare; remove images that are not needed, or enlarge it: %w", b.dir, errdefs.ErrExhausted)
}
