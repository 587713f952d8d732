package layer

import (
	"fmt"
	"io"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/disk"
)

// Limits bound what one layer may do to this node. They stop hostile images,
// not large ones.
type Limits struct {
	LayerEntries int64 // files, folders and links in one layer; default 2 million
	LayerBytes   int64 // size of one layer, compressed and unpacked; default 256 GiB, and never more than the disk can spare
}

// bound is how many bytes a layer may unpack to.
type bound struct {
	bytes  int64
	isDisk bool   // bytes is what the disk could spare when the layer was begun
	dir    string // on the disk
}

// bound is the configured limit, or what the disk can spare if that is less.
func (o Options) bound() bound {
	b := bound{bytes: o.Limits.LayerBytes, dir: o.Dir}
	if free := disk.Spare(o.Dir); free < b.bytes {
		b.bytes, b.isDisk = free, true
	}
	return b
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

// lookEvery is after how many bytes the disk is looked at again: layers that are
// unpacked at the same time share what it can spare.
const lookEvery = 64 << 20

// cappedReader fails once a layer has grown past its bound.
type cappedReader struct {
	r     io.Reader
	bound bound
	ended func() error // why nobody wants the layer any more
	n     int64
	look  int64 // from how many bytes on the disk is looked at again
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if err := c.ended(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n > c.bound.bytes {
		return 0, c.bound.exceeded()
	}
	if c.n >= c.look {
		c.look = c.n + lookEvery
		if disk.Spare(c.bound.dir) == 0 {
			return 0, c.bound.full()
		}
	}
	return n, err
}
