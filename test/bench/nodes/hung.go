package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/report"
	"fairlead.run/test/e2e/cluster"
	"fairlead.run/test/e2e/machine"
)

// silentRegistry takes connections and never answers; silentHosts is what sends the pulls
// from silentName there.
const (
	silentName     = "silent.invalid"
	silentRegistry = cluster.HostAddress + ":5999"
	silentHosts    = "server = \"http://" + silentRegistry + "\"\n"
)

// stuck is where a file system of a node never answers.
func (n *node) stuck() string { return filepath.Join(n.memory, "stuck") }

// beside has pods come and go, one after the other, while others hang: half of them for
// a volume in a file system that never answers, half in a pull that never ends.
func (b *bench) beside(ctx context.Context, n *node) (err error) {
	release, err := b.obstruct(ctx, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	specs := make([]string, b.plan.hung)
	for i := range specs {
		specs[i] = fmt.Sprintf("  containers: [{name: idle, image: %q}]", silentName+"/idle:1")
		if i%2 == 0 {
			// A kubelet mounts only what a container has.
			specs[i] = fmt.Sprintf("  containers: [{name: idle, image: %q, volumeMounts: [{name: stuck, mountPath: /stuck}]}]\n"+
				"  volumes: [{name: stuck, hostPath: {path: %q, type: Directory}}]", registry+workload, filepath.Join(n.stuck(), "x"))
		}
	}
	_, names, err := b.submit(ctx, n, specs)
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.plan.settle); err != nil {
		return err
	}
	times, err := b.serial(ctx, n, b.plan.pods)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(names, func(name string) bool { return !b.watch.of(name).ready.IsZero() }); i >= 0 {
		return fmt.Errorf("pod %s was to hang, and is Ready", names[i])
	}
	scenario := report.BesideHung(b.plan.hung)
	b.take(n, scenario, times)
	b.say("%-20s %-20s until Ready %.0f ms", scenario, n.variant, report.Quantile(times[report.Ready], 0.5))
	// What hangs gets an error now, so that its pod can end.
	if err := release(); err != nil {
		return err
	}
	return b.remove(ctx, names, map[string][]float64{})
}

// obstruct has a registry and a file system of a node answer no more, until they are
// released.
func (b *bench) obstruct(ctx context.Context, n *node) (release func() error, err error) {
	registry, err := net.Listen("tcp", silentRegistry)
	if err != nil {
		return nil, err
	}
	server, err := b.stuckMount(ctx, n)
	if err != nil {
		return nil, errors.Join(err, registry.Close())
	}
	return sync.OnceValue(func() error {
		return errors.Join(registry.Close(), server.End(unix.SIGKILL, time.Minute))
	}), nil
}

// stuckMount has another process of this program mount a file system on a node.
func (b *bench) stuckMount(ctx context.Context, n *node) (*machine.Process, error) {
	if err := os.MkdirAll(n.stuck(), 0o755); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server, err := n.launch(b.o, program, "-stick", n.stuck())
	if err != nil {
		return nil, err
	}
	return server, await(ctx, b.plan.patience, func() error {
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", n.main.Pid()))
		if err == nil && !strings.Contains(string(mounts), "stuck "+n.stuck()+" fuse ") {
			err = fmt.Errorf("nothing is mounted on %s", n.stuck())
		}
		return err
	})
}

// stick mounts a file system whose server never reads what it is asked, and ends with
// this process. What is left of an earlier one goes.
func stick(dir string) error {
	_ = unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("stuck", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a FUSE file system on %s: %w", dir, err)
	}
	for {
		if err := unix.Pause(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
