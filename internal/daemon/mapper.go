package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/rootfs"
	"fairlead.run/internal/userns"
)

// waiter is the program around which user namespaces are made.
func waiter(monitor string) []string { return []string{monitor, "pause"} }

// mapper finds out whether pods can have user namespaces on this host.
type mapper struct {
	state, root, monitor string

	mu    sync.Mutex // held while it looks: handlers are tried at once
	found bool       // that layers can be mapped
}

// trialID is root of the user namespace in which layers are tried.
const trialID = 1 << 16

// try makes a user namespace to try a handler in, after a look whether the
// images that are kept below root can be mounted for one.
func (m *mapper) try(ctx context.Context) (*userns.Holder, error) {
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	return m.hold(userns.Everybody)
}

func (m *mapper) look(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found {
		return nil
	}
	err := passable(filepath.Dir(m.state))
	if err == nil {
		err = m.layers(ctx)
	}
	m.found = err == nil
	return err
}

// passable says why root of a user namespace, who is nobody on the host, cannot
// follow a path to what is in a folder.
func passable(folder string) error {
	for dir := folder; ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at the folders above the state directory: %w", err)
		}
		if st.Mode()&0o001 == 0 {
			return fmt.Errorf("%s, which the state directory is in, lets root alone through (mode %#o); chmod o+x it, or have the state directory elsewhere: %w", dir, st.Mode().Perm(), errdefs.ErrPrecondition)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (m *mapper) hold(ids []userns.Range) (*userns.Holder, error) {
	return userns.Start(userns.Spec{Program: waiter(m.monitor), UIDs: ids, GIDs: ids})
}

func (m *mapper) layers(ctx context.Context) error {
	h, err := m.hold([]userns.Range{{Outside: trialID, Length: 1 << 16}})
	if err != nil {
		return err
	}
	defer h.End()
	ids := []pod.IDMapping{{HostID: trialID, Length: 1 << 16}}
	return rootfs.CanMap(ctx, m.root, &rootfs.Mapping{UserNS: h.Path("user"), IDs: &pod.UserNamespace{UIDs: ids, GIDs: ids}})
}
