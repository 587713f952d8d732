// Package gather runs the sources of manifests that a user has named: a folder, an
// address, standard input. It hands on what all of them hold together.
package gather

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/changeset"
	"fairlead.run/internal/node/source/folder"
	"fairlead.run/internal/node/source/keep"
	"fairlead.run/internal/node/source/stdin"
	"fairlead.run/internal/node/source/url"
)

// Config names the sources. None at all is right, too: there are no pods then.
type Config struct {
	Folder string // of manifests, absolute, or a file of static pods; empty for none
	// Changes is the same folder for those who change it within this process; nil for
	// nobody.
	Changes *changeset.Folder
	Address
	Input io.Reader // standard input; nil for none
	// Keep is where the last good versions of manifests are kept, which is below a
	// persistent folder. Nobody else may use it.
	Keep   string
	Static bool // folder and address hold static pods of a node
	Log    *slog.Logger
}

// Address serves manifests. The zero value is none.
type Address struct {
	URL      string
	Header   http.Header
	Interval time.Duration // between two requests; 0 for the default
}

// Kinds are the kinds of the sources that are named. Of two that define the same
// object, the first keeps it.
func (c Config) Kinds() []string {
	var out []string
	for _, s := range []struct {
		kind  string
		named bool
	}{{source.File, c.Folder != ""}, {source.Address, c.URL != ""}, {source.Stdin, c.Input != nil}} {
		if s.named {
			out = append(out, s.kind)
		}
	}
	return out
}

// Sources are those that a Config names.
type Sources struct {
	set  func(source.Set)
	runs []func(context.Context) error
}

// New makes Sources that call set with the whole of what they hold, each time that it
// has changed. It fails if one of them cannot be what was meant.
func New(c Config, set func(source.Set)) (*Sources, error) {
	out := &Sources{set: set}
	merged := source.NewMerger(set, c.Kinds()...)
	if c.Folder != "" {
		kept := filepath.Join(c.Keep, "manifests")
		if err := c.first(keep.Folder(kept)); err != nil {
			return nil, err
		}
		out.runs = append(out.runs, folder.New(folder.Config{Path: c.Folder, Keep: keep.Folder(kept), Static: c.Static, Changes: c.Changes, Log: c.Log}, merged.From(source.File)).Run)
	}
	if c.URL != "" {
		s, err := url.New(url.Config{
			URL: c.URL, Header: c.Header, Interval: c.Interval, Keep: keep.Folder(filepath.Join(c.Keep, "manifests.http")), Static: c.Static,
		}, merged.From(source.Address))
		if err != nil {
			return nil, err
		}
		out.runs = append(out.runs, s.Run)
	}
	if c.Input != nil {
		out.runs = append(out.runs, stdin.New(c.Input, merged.From(source.Stdin)).Run)
	}
	return out, nil
}

// first makes a folder that is not there, unless copies of its manifests are kept: it may
// be on a disk that is not mounted then, and its pods stay. Static pods may be in a single
// file instead.
func (c Config) first(kept keep.Folder) error {
	if info, err := os.Stat(c.Folder); err == nil && c.Static && info.Mode().IsRegular() {
		return nil
	}
	copies, err := kept.Load()
	ofIt := func(one keep.Copy) bool { return filepath.Dir(one.Name) == filepath.Clean(c.Folder) }
	if err != nil || slices.ContainsFunc(copies, ofIt) {
		return nil // what copies are lost is told when they are read
	}
	if err := os.MkdirAll(c.Folder, 0o700); err != nil {
		return fmt.Errorf("make the folder of manifests: %w", err)
	}
	return nil
}

// Run follows all of them until ctx ends.
func (s *Sources) Run(ctx context.Context) error {
	if len(s.runs) == 0 {
		s.set(source.Set{Objects: &manifest.Objects{}})
		<-ctx.Done()
		return nil
	}
	var all sync.WaitGroup
	errs := make([]error, len(s.runs))
	for i, run := range s.runs {
		all.Go(func() { errs[i] = run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
