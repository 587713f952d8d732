// Package userids gives pods with a user namespace (hostUsers: false, KEP-127) ids of the
// node that nobody else has. It asks no runtime for anything, and knows nothing of volumes:
// their files keep the owners that they have in the pod, and are mapped where they are
// mounted.
package userids

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
)

// Length is how many ids a pod has.
const Length = 1 << 16

// Pool is the ids of a node. A link for each pod that has some, with its UID as the target
// and its first id as the name, says whose they are: making one is a single step, so that
// several processes may share a Pool, and it outlives them. Make it by New.
type Pool struct {
	folder string
	find   func(context.Context) (Range, error)

	mu  sync.Mutex
	has *Range // nil before it was found out
}

// In is the folder for a Pool below a persistent folder, which all agents of a node share.
func In(root string) string { return filepath.Join(root, "userids") }

// New makes a Pool that is kept in a folder. Nothing is done before ids are asked for.
func New(folder string) *Pool { return &Pool{folder: folder, find: Find} }

// Take gives a pod its first id. It is the same each time, until Free. The error is
// errdefs.ErrUnavailable if all are taken.
func (p *Pool) Take(ctx context.Context, uid types.UID) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken, err := p.taken()
	if err != nil {
		return 0, err
	}
	for first, owner := range taken {
		if owner == uid {
			return first, nil
		}
	}
	if p.has == nil {
		has, err := p.find(ctx)
		if err != nil {
			return 0, fmt.Errorf("find ids for user namespaces: %w", err)
		}
		p.has = &has
	}
	if err := os.MkdirAll(p.folder, 0o700); err != nil {
		return 0, err
	}
	for i := range p.has.Pods {
		first := p.has.First + i*Length
		if taken[first] != "" {
			continue
		}
		err := os.Symlink(string(uid), p.path(first))
		if err == nil {
			return first, nil
		}
		if !errors.Is(err, fs.ErrExist) { // else another process was faster
			return 0, fmt.Errorf("take ids for a user namespace: %w", err)
		}
	}
	return 0, fmt.Errorf("all ids for user namespaces are taken, and there are some for %d pods; the entry of kubelet in /etc/subuid and /etc/subgid says how many: %w", p.has.Pods, errdefs.ErrUnavailable)
}

// Free gives the ids of a pod back. One that has none is no error.
func (p *Pool) Free(uid types.UID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken, err := p.taken()
	if err != nil {
		return err
	}
	for first, owner := range taken {
		if owner != uid {
			continue
		}
		if err := os.Remove(p.path(first)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("give ids of a user namespace back: %w", err)
		}
	}
	return nil
}

func (p *Pool) path(first uint32) string {
	return filepath.Join(p.folder, strconv.FormatUint(uint64(first), 10))
}

// taken are the owners of ids, by the first one. The caller holds mu.
func (p *Pool) taken() (map[uint32]types.UID, error) {
	out := map[uint32]types.UID{}
	entries, err := os.ReadDir(p.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find out who has ids for user namespaces: %w", err)
	}
	for _, e := range entries {
		first, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue
		}
		owner, err := os.Readlink(filepath.Join(p.folder, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was given back meanwhile
		case err != nil:
			return nil, fmt.Errorf("find out who has ids for user namespaces: %w", err)
		default:
			out[uint32(first)] = types.UID(owner)
		}
	}
	return out, nil
}
