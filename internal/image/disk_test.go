package image_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

// smallDisk is a store on a tmpfs that is mounted with some options.
func smallDisk(t *testing.T, options string) image.Config {
	t.Helper()
	needRoot(t)
	cfg := config(t)
	cfg.Root = t.TempDir()
	if err := unix.Mount("tmpfs", cfg.Root, "tmpfs", 0, options); err != nil {
		t.Skipf("needs a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		// The content store's check for fs-verity leaves a file to the garbage
		// collector to close.
		err := unix.Unmount(cfg.Root, 0)
		for i := 0; i < 50 && errors.Is(err, unix.EBUSY); i++ {
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
			err = unix.Unmount(cfg.Root, 0)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return cfg
}

func TestFullDisk(t *testing.T) {
	zeros := images.Layer{Files: map[string]images.File{"zeros": {Body: make([]byte, 8<<20)}}}
	for name, tc := range map[string]struct {
		layer images.Layer
		text  string
	}{
		"blob does not fit":  {images.Layer{Files: map[string]images.File{"noise": {Body: noise(8 << 20)}}, Compression: images.Plain}, "can spare"},
		"layer does not fit": {zeros, "can spare"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			cfg := smallDisk(t, "size=4m")
			s := openSynced(t, cfg)
			built := build(t, images.Spec{Layers: []images.Layer{tc.layer}})
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Push("big:1", built)})
			if !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("pull: %v", err)
			}
			wantClean(t, cfg.Root)
			_, err = s.Import(t.Context(), bytes.NewReader(ociArchive(t, images.Named{Image: built})), image.ImportOptions{})
			if !errors.Is(err, errdefs.ErrExhausted) {
				t.Errorf("import: %v", err)
			}
			wantClean(t, cfg.Root)
			pull(t, s, reg.Push("small:1", simple(t, "x")))
			if err := s.Close(); err != nil { // before the file system goes
				t.Error(err)
			}
		})
	}
}

// A file system has so many files and no more: one layer of many small ones must
// not take the last.
func TestDiskOfFewFiles(t *testing.T) {
	many := images.Layer{Files: map[string]images.File{}}
	for i := range 1900 {
		many.Files[strconv.Itoa(i)] = images.File{}
	}
	reg := newRegistry(t)
	cfg := smallDisk(t, "size=64m,nr_inodes=2000")
	s := openSynced(t, cfg)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Push("many:1", build(t, images.Spec{Layers: []images.Layer{many}}))})
	if !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), "files, folders and links that the disk of") {
		t.Errorf("%v", err)
	}
	wantClean(t, cfg.Root)
	pull(t, s, reg.Push("small:1", simple(t, "x")))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestImportProgressAndCancel(t *testing.T) {
	cfg := config(t)
	s := openSynced(t, cfg)
	b := ociArchive(t, images.Named{Image: simple(t, "x"), Names: []string{"a.example/b:1"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Import(ctx, bytes.NewReader(b), image.ImportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	wantClean(t, cfg.Root)
	var last image.Progress
	if _, err := s.Import(t.Context(), bytes.NewReader(b), image.ImportOptions{Progress: func(p image.Progress) { last = p }}); err != nil {
		t.Fatal(err)
	}
	if last.Phase != image.PhaseDone || len(last.Layers) != 2 {
		t.Errorf("%+v", last)
	}
}
