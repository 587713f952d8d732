package cdi

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"fairlead.run/internal/hostpath"
)

// folder is one of the folders. Who looks at the same one takes turns, which is
// hostpath's doing; no lock is held meanwhile.
type folder struct {
	path string
	last atomic.Pointer[contents] // nil until somebody asks
}

// contents are what a folder has. They do not change.
type contents struct {
	files []file
	cache *cdi.Cache // what the files say
}

// file tells whether a file has changed.
type file struct {
	path     string
	inode    uint64
	size     int64
	modified time.Time
}

// read returns what is in the folder now.
func (f *folder) read(ctx context.Context) (*contents, error) {
	now, err := hostpath.Look(ctx, f.path, func() (*contents, error) { return contentsOf(f.path, f.last.Load()) })
	if err == nil {
		f.last.Store(now)
	}
	return now, err
}

// contentsOf reads a folder, unless it is as it was last.
func contentsOf(dir string, last *contents) (*contents, error) {
	files, err := list(dir)
	if err != nil {
		return nil, err
	}
	if last != nil && slices.Equal(files, last.files) {
		return last, nil
	}
	// What single files have wrong is kept in the cache, for explain.
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(dir))
	return &contents{files, cache}, err
}

// list is what is in a folder now. One that is missing has nothing.
func list(dir string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []file
	for _, e := range entries {
		f := file{path: filepath.Join(dir, e.Name())}
		var st unix.Stat_t
		if err := unix.Stat(f.path, &st); err == nil { // with its links followed, as it is read
			f.inode, f.size, f.modified = st.Ino, st.Size, time.Unix(st.Mtim.Unix())
		}
		out = append(out, f)
	}
	return out, nil
}

// conflict says whether several files describe a device that therefore is not
// there.
func (c *contents) conflict(name string) bool {
	vendor, class, device := parser.ParseDevice(name)
	return slices.ContainsFunc(c.cache.GetVendorSpecs(vendor), func(s *cdi.Spec) bool {
		return s.GetClass() == class && s.GetDevice(device) != nil
	})
}
