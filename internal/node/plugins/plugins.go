// Package plugins finds the programs that serve a node beside its agent, such as
// drivers of volumes. Each puts a socket into one folder, where a kubelet would look
// for it, and says there what it is and whether it was taken.
//
// What a plugin is good for it does not know: that is for the Kind of its type.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/hostpath"
)

// Plugin is what a program has said of itself.
type Plugin struct {
	Type, Name string
	Endpoint   string   // path of the socket that it is to be called at
	Versions   []string // of its interface
	Socket     string   // by which it was found
}

// Kind takes the plugins of one type. Calls for different sockets come from
// different goroutines; of two plugins with one name the later one counts.
type Kind interface {
	// Register takes a plugin. Its error is told to the plugin, and it is tried
	// again. It may be called again for what was taken.
	Register(ctx context.Context, p Plugin) error
	// Unregister says that the socket of a plugin is gone, which Register has taken.
	Unregister(p Plugin)
}

// Config is what a Registry works with. All fields are required.
type Config struct {
	Folder string
	Kinds  map[string]Kind // by the type that plugins call themselves
	// Warn tells by an event of the node what is wrong for more than a moment, once as
	// long as it is the same. It must not wait.
	Warn func(reason, message string)
	Log  *slog.Logger
}

// FailedRegistration is the reason of the event of a plugin that is not taken.
const FailedRegistration = "FailedPluginRegistration"

// Registry looks after one folder.
type Registry struct {
	cfg      Config
	sessions map[string]*session // by path of the socket
	running  sync.WaitGroup
	unseen   string // what was told of a folder that cannot be looked through
}

// New makes a Registry.
func New(cfg Config) *Registry { return &Registry{cfg: cfg, sessions: map[string]*session{}} }

const (
	// audit is how often the folder is looked at though nothing was heard of it, and
	// unheard how often where nothing can be.
	audit   = time.Minute
	unheard = 2 * time.Second
)

// Run takes plugins until ctx ends. They stay what they are then: the next Registry
// finds them again.
func (r *Registry) Run(ctx context.Context) error {
	defer r.running.Wait()
	w, err := fsnotify.NewWatcher()
	watch := func(folder string) error { return err }
	if err == nil {
		defer func() { _ = w.Close() }()
		watch = w.Add
	} else {
		w = &fsnotify.Watcher{} // of which nothing is heard
	}
	for deaf := false; ; {
		if err := r.look(ctx, watch); (err != nil) != deaf {
			if deaf = err != nil; deaf {
				r.cfg.Log.Warn("the folder of plugins cannot be watched, and is looked at every few seconds; see the sysctls fs.inotify.max_user_instances and max_user_watches", "error", err)
			}
		}
		every := audit
		if deaf || r.unseen != "" {
			every = unheard
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.Events:
		case <-w.Errors: // what was lost the look finds
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// identity tells a socket from another that has taken its path.
type identity struct {
	device, inode uint64
	made          unix.Timespec
}

// look begins with the sockets that are new, and ends with those that are gone. An error
// is that not all folders can be watched.
func (r *Registry) look(ctx context.Context, watch func(folder string) error) error {
	seen := r.sockets(watch)
	r.blind(seen.failed)
	for path, s := range r.sessions {
		is, there := seen.sockets[path]
		if there && is == s.is || !there && seen.failed != nil {
			continue
		}
		delete(r.sessions, path)
		s.end()
		if there {
			r.begin(ctx, path, is, s.done)
		}
	}
	for path, is := range seen.sockets {
		if r.sessions[path] == nil {
			r.begin(ctx, path, is, nil)
		}
	}
	return seen.unwatched
}

// blind tells that not all of the folder was seen: what was not may be there.
func (r *Registry) blind(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != r.unseen {
		r.cfg.Warn(FailedRegistration, fmt.Sprintf("Drivers and plugins that are new in %s are not taken before it can be looked through, which is tried again: %s%s", r.cfg.Folder, text, hostpath.Advice(err)))
	}
	r.unseen = text
}

// begin has a socket attended to, once what attends to the one before it has ended.
func (r *Registry) begin(ctx context.Context, path string, is identity, before <-chan struct{}) {
	s := &session{registry: r, path: path, is: is, gone: make(chan struct{}), done: make(chan struct{})}
	r.sessions[path] = s
	r.running.Go(func() {
		defer close(s.done)
		if before != nil {
			<-before
		}
		s.run(ctx)
	})
}

// sight is what there is in the folder and below it.
type sight struct {
	sockets   map[string]identity // by path
	unwatched error               // why nothing is heard of a folder
	failed    error               // why not all was seen
}

// sockets looks what there is. Folders are watched before they are read, so that nothing
// is missed in between.
func (r *Registry) sockets(watch func(folder string) error) sight {
	out := sight{sockets: map[string]identity{}}
	if out.failed = os.MkdirAll(r.cfg.Folder, 0o750); out.failed != nil {
		return out
	}
	out.failed = filepath.WalkDir(r.cfg.Folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case strings.HasPrefix(d.Name(), ".") && path != r.cfg.Folder:
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
			if err := watch(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				out.unwatched = errors.Join(out.unwatched, fmt.Errorf("watch %s: %w", path, err))
			}
		case d.Type() == fs.ModeSocket:
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err == nil {
				out.sockets[path] = identity{st.Dev, st.Ino, st.Mtim}
			}
		}
		return nil
	})
	return out
}
