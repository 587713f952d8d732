package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
)

var published = failpoint.Register("handlers.published")

// changer changes the handlers of a daemon that serves. Those that were added by
// command are in a folder of the root directory, NAME.toml each; the others are
// in the configuration files.
type changer struct {
	registry *runtime.Registry[lifecycle.Handler]
	dir      string
	log      *slog.Logger

	mu   sync.Mutex // held for a whole change
	base *config.Config

	pods  atomic.Pointer[lifecycle.Core] // who knows which pods there are
	fewer chan struct{}                  // gets an element when a revision may be needed no more
}

// uses counts the pods of each revision of a handler.
func (c *changer) uses() map[pod.HandlerUse]int {
	out := map[pod.HandlerUse]int{}
	if core := c.pods.Load(); core != nil {
		for _, r := range core.Pods() {
			out[r.Use()]++
		}
	}
	return out
}

// wantedHandlers is what the configuration and those that were added say together.
func wantedHandlers(base *config.Config, added map[string]config.Handler) (runtime.Wanted, error) {
	w := runtime.Wanted{Default: base.DefaultHandler, Discover: len(base.Handlers) == 0, Handlers: maps.Clone(base.Handlers)}
	if w.Handlers == nil {
		w.Handlers = map[string]config.Handler{}
	}
	w.Origin = func(name string) string {
		key := "handlers." + name
		if _, by := added[name]; by {
			return key + " in " + addedFile(addedFolder(base), name)
		}
		return key + " in " + base.Origin(key)
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		if _, twice := base.Handlers[name]; twice {
			return w, fmt.Errorf("handler %s is in %s, and was added by command, too; take it out of one: %w", name, base.Origin("handlers."+name), errdefs.ErrPrecondition)
		}
		w.Handlers[name] = added[name]
	}
	return w, nil
}

// firstHandlers is what a daemon starts with. What is wrong with those that were
// added keeps no other handler from its pods.
func firstHandlers(cfg *config.Config, log *slog.Logger) runtime.Wanted {
	added, err := readAdded(addedFolder(cfg))
	w, twice := wantedHandlers(cfg, added)
	if err := errors.Join(err, twice); err != nil {
		log.Error("a handler that was added by command is not used", "error", err)
	}
	return w
}

func addedFolder(cfg *config.Config) string { return filepath.Join(cfg.Root, "handlers.d") }

func addedFile(folder, name string) string { return filepath.Join(folder, name+".toml") }

// readAdded reads the handlers that were added by command. Those that cannot be
// read are in the error.
func readAdded(dir string) (map[string]config.Handler, error) {
	added := map[string]config.Handler{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.toml")) // an error is one of the pattern
	var failed []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		var found map[string]config.Handler
		if err == nil {
			found, err = config.ParseHandlers(file, data)
		}
		failed = append(failed, err)
		maps.Copy(added, found)
	}
	return added, errors.Join(failed...)
}

// reload takes up what has changed in the configuration files, as a whole or not
// at all.
func (c *changer) reload(ctx context.Context, load func() (*config.Config, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cfg, err := load()
	var added map[string]config.Handler
	if err == nil {
		added, err = readAdded(c.dir)
	}
	var w runtime.Wanted
	if err == nil {
		w, err = wantedHandlers(cfg, added)
	}
	var change runtime.Change
	if err == nil {
		change, err = c.registry.Apply(ctx, w, nil, nil)
	}
	if err != nil {
		c.log.Error("the configuration has changed and is not used; what was in force stays", "error", err)
		return
	}
	if !sameElsewhere(c.base, cfg) {
		c.log.Warn("the configuration has changed in more than its handlers; the rest takes a restart of the daemon")
	}
	c.base = cfg
	if len(change.Added)+len(change.Changed)+len(change.Removed) > 0 {
		c.log.Info("handlers were changed by the configuration", "added", change.Added, "changed", change.Changed, "removed", change.Removed)
	}
}

// sameElsewhere says whether two configurations differ in handlers at most.
func sameElsewhere(a, b *config.Config) bool {
	x, y := *a, *b
	x.Handlers, x.DefaultHandler, y.Handlers, y.DefaultHandler = nil, "", nil, ""
	before, errX := x.MarshalJSON()
	after, errY := y.MarshalJSON()
	return errX == nil && errY == nil && bytes.Equal(before, after)
}

// The verbs of changes.
const (
	addHandler    = "add"
	setHandler    = "set"
	removeHandler = "rm"
)

// change adds, changes or removes a handler that is not in the configuration files.
func (c *changer) change(ctx context.Context, verb, name string, settings []string, tell func(string)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.tryChange(ctx, verb, name, settings, tell); err != nil {
		return fmt.Errorf("%s runtime handler %s: %w", verb, name, err)
	}
	return nil
}

func (c *changer) tryChange(ctx context.Context, verb, name string, settings []string, tell func(string)) error {
	if err := config.CheckHandlerName(name); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if _, there := c.base.Handlers[name]; there {
		return fmt.Errorf("it is described in %s; change it there, and the daemon takes that up by itself: %w", c.base.Origin("handlers."+name), errdefs.ErrPrecondition)
	}
	added, err := readAdded(c.dir)
	if err != nil {
		return err
	}
	file := addedFile(c.dir, name)
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there := err == nil
	if err := c.allowed(verb, name, there); err != nil {
		return err
	}
	var after []byte
	delete(added, name)
	if verb != removeHandler {
		base := before
		if verb == addHandler {
			base = nil
		}
		if after, err = config.EditHandler(base, name, settings); err != nil {
			return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
		found, err := config.ParseHandlers(file, after)
		if err != nil {
			return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
		maps.Copy(added, found)
		if verb == addHandler && there && !bytes.Equal(before, after) {
			return fmt.Errorf("it was added before, and differently; fairlead handlers set changes it: %w", errdefs.ErrAlreadyExists)
		}
	}
	w, err := wantedHandlers(c.base, added)
	if err != nil {
		return err
	}
	if _, err = c.registry.Apply(ctx, w, tell, func() error { return writeAdded(file, after) }); err != nil {
		return errors.Join(err, writeAdded(file, before)) // as it was; nil for no file
	}
	return failpoint.Hit(published)
}

// allowed says why a change does not fit what there is, or nil.
func (c *changer) allowed(verb, name string, there bool) error {
	if verb == addHandler || there {
		return nil
	}
	offered := c.registry.Offers(name)
	if verb == removeHandler && !offered && c.registry.NameOf(name) != "" {
		return nil // it drains: the answer to the first request was lost
	}
	if offered {
		return fmt.Errorf("it was not added by command, but found on PATH; describe the handlers that there shall be in the configuration: %w", errdefs.ErrPrecondition)
	}
	names, _ := filepath.Glob(filepath.Join(c.dir, "*.toml"))
	for i := range names {
		names[i] = strings.TrimSuffix(filepath.Base(names[i]), ".toml")
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	return fmt.Errorf("no handler of that name was added; those that were: %s: %w", strings.Join(names, ", "), errdefs.ErrNotFound)
}

// writeAdded writes the file of a handler that outlives a loss of power; nil
// removes it.
func writeAdded(file string, data []byte) error {
	if data == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.WriteSync(file, data, 0o600)
}
