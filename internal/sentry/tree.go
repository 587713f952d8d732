package sentry

import (
	"context"
	"fmt"
	"syscall"
)

// process has the names that the sandbox writes. The numbers are those of its
// root PID namespace, which an exec writes into its file --internal-pid-file.
type process struct {
	PID   int32 `json:"pid"`
	PPID  int32 `json:"ppid"`
	Group int32 `json:"pgid"`
}

// KillTree kills a process that was executed in a container, and what it has
// started: its process group and its descendants, until none of them is left. What
// has left the group and lost its parent is not found.
func KillTree(ctx context.Context, socket, container string, pid int32) error {
	killed := map[int32]bool{pid: true}
	for {
		var all []process
		if err := call(ctx, socket, request{"containerManager.Processes", container, nil}, &all); err != nil {
			return fmt.Errorf("list the processes of container %s in its sandbox: %w", container, err)
		}
		tree := grow(all, pid, killed)
		if len(tree) == 0 {
			return nil
		}
		for _, p := range tree {
			args := signalArgs{CID: container, Signo: int32(syscall.SIGKILL), PID: p, Mode: toFirst}
			err := call(ctx, socket, request{"containerManager.Signal", &args, nil}, nil)
			if err != nil && !Refused(err) { // it has ended meanwhile
				return fmt.Errorf("kill process %d of container %s in its sandbox: %w", p, container, err)
			}
		}
	}
}

// grow adds to the tree what has been started since, and returns those of it that
// are still there.
func grow(all []process, root int32, tree map[int32]bool) (alive []int32) {
	for more := true; more; {
		more = false
		for _, p := range all {
			if !tree[p.PID] && (tree[p.PPID] || p.Group == root) {
				tree[p.PID], more = true, true
			}
		}
	}
	for _, p := range all {
		if tree[p.PID] {
			alive = append(alive, p.PID)
		}
	}
	return alive
}
