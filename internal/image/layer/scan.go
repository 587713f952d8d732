package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"strings"

	"fairlead.run/internal/errdefs"
)

const (
	// maxPath is PATH_MAX without the zero byte.
	maxPath = 4095
	// maxNames is what the names of all entries may take, in bytes: they are kept
	// in memory, some of them twice, until the layer is unpacked.
	maxNames = 256 << 20
)

// entryScan looks at every entry of a layer before it is made, and refuses what
// would take more of this node than the layer may.
type entryScan struct {
	watch *watch
	names int64 // how many bytes of names there may be

	n      int64 // of files, folders and links, those that names imply included
	bytes  int64 // what the entries so far unpack to
	named  int64 // bytes of their names
	last   *tar.Header
	listed map[string]bool
	used   map[string]bool
}

func newEntryScan(w *watch) *entryScan {
	return &entryScan{watch: w, names: maxNames, listed: map[string]bool{}, used: map[string]bool{}}
}

// visit is called with each entry before it is made.
func (s *entryScan) visit(h *tar.Header) (bool, error) {
	forget(s.last)
	s.last = h
	if err := s.check(h); err != nil {
		return false, err
	}
	// Both may be parts of a megabyte of attributes, which they would keep.
	h.Name, h.Linkname = strings.Clone(h.Name), strings.Clone(h.Linkname)
	name := strings.TrimPrefix(h.Name, "/") // Name is clean by now
	if h.Typeflag == tar.TypeDir {
		s.listed[name] = true
	}
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if s.used[name[:i]] {
			break // and so are its parents
		}
		s.used[name[:i]] = true
		if s.listed[name[:i]] {
			continue // and counted
		}
		if err := s.count(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// forget drops what is of no use once an entry is made. The headers of folders
// are kept to the end, and with their attributes they could fill the memory.
func forget(h *tar.Header) {
	if h != nil {
		//lint:ignore SA1019 the reader fills in both
		h.PAXRecords, h.Xattrs = nil, nil
		h.Linkname, h.Uname, h.Gname = "", "", ""
	}
}

func (s *entryScan) check(h *tar.Header) error {
	if err := errors.Join(s.count(), s.watch.step(1, 0)); err != nil {
		return err
	}
	for _, name := range []string{h.Name, h.Linkname} {
		if len(name) > maxPath {
			return fmt.Errorf("its entry %.60q... has a path of %d bytes, more than the %d that any may have: %w", h.Name, len(name), maxPath, errdefs.ErrInvalidArgument)
		}
	}
	if s.named += int64(len(h.Name)); s.named > s.names {
		return fmt.Errorf("the names of its entries take more than %d bytes: %w", s.names, errdefs.ErrExhausted)
	}
	// A sparse file is nearly nothing in the archive.
	if h.Size > s.watch.bound.bytes-s.bytes {
		return s.watch.bound.exceeded()
	}
	s.bytes += h.Size
	return nil
}

// count counts one more thing that is made: a path of two bytes for each folder
// would make thousands of them.
func (s *entryScan) count() error {
	if s.n++; s.n > s.watch.bound.entries {
		return s.watch.bound.tooMany()
	}
	return nil
}

// implied are the folders that the layer has entries in but does not list.
func (s *entryScan) implied() []string {
	var out []string
	for dir := range s.used {
		if !s.listed[dir] {
			out = append(out, dir)
		}
	}
	return out
}
