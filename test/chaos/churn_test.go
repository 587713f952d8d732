package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/store"
	"fairlead.run/test/node"
)

const (
	churnClients = 8
	churnRounds  = 10 // that count
	churnWarmup  = 3  // rounds before, in which caches and pools fill
)

// churnPods is how many pods there are in the rounds that count.
// FAIRLEAD_CHURN_PODS asks for another number.
func churnPods(t *testing.T) int {
	s := os.Getenv("FAIRLEAD_CHURN_PODS")
	if s == "" {
		return 1000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < churnRounds {
		t.Fatalf("FAIRLEAD_CHURN_PODS=%q is no number of at least %d", s, churnRounds)
	}
	return n
}

// Pods come and go through several clients. Whatever daemon and monitor hold is
// back where it was afterwards: over the rounds nothing grows by more than a
// tiny part of itself, as far as statistics can tell.
func TestChurn(t *testing.T) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	perRound := churnPods(t) / churnRounds
	begin := time.Now()
	var c turnover
	run := func(rounds int) (out []sample) {
		for range rounds {
			c.round(n, perRound)
			out = append(out, weigh(n, measure(n)))
		}
		return out
	}
	run(churnWarmup)
	samples := run(churnRounds)
	grown := growth(samples)
	t.Logf("%d pods in %s", c.next, time.Since(begin).Round(time.Millisecond))
	first, last := samples[0], samples[len(samples)-1]
	for _, name := range slices.Sorted(maps.Keys(first)) {
		t.Logf("%-40s %12.0f then %12.0f", name, first[name], last[name])
	}
	if len(grown) > 0 {
		// What was still filling up stops to grow; what leaks does not.
		t.Logf("once more, because these grew: %s", strings.Join(grown, "; "))
		grown = grownAgain(grown, growth(run(churnRounds)))
	}
	for _, g := range grown {
		t.Error(g)
	}
	wantInOrder(t, n)
}

// turnover counts the pods of all rounds.
type turnover struct{ next int }

// round runs pods through all clients and waits until nothing of them is left.
func (c *turnover) round(n *node.Node, pods int) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.T.Context(), 10*node.Patience)
	defer cancel()
	work := make(chan int)
	var g errgroup.Group
	for range churnClients {
		g.Go(func() error {
			var failed []error
			for i := range work {
				if err := life(ctx, n, i); err != nil {
					failed = append(failed, fmt.Errorf("pod %d: %w", i, err))
				}
			}
			return errors.Join(failed...)
		})
	}
	for range pods {
		work <- c.next
		c.next++
	}
	close(work)
	if err := g.Wait(); err != nil {
		n.T.Fatal(err)
	}
	node.Eventually(n.T, "the pods of the round are gone", func() bool { return len(n.OfPods()) == 0 })
}

// life is all that happens to one pod. What differs follows from its number.
func life(ctx context.Context, n *node.Node, i int) error {
	name := fmt.Sprintf("churn%d", i)
	handler := "crun"
	if i%5 == 0 {
		handler = "runc"
	}
	p := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "churn"},
		Hostname:     name,
		LogDirectory: filepath.Join(n.Logs, name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
	if i%7 == 0 {
		p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: int32(20000 + i%8000)}}
	}
	if i%10 == 0 {
		node.SharedPID(p)
	}
	defer os.RemoveAll(p.LogDirectory)
	r, err := n.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p, RuntimeHandler: handler})
	if err != nil {
		return err
	}
	n.Know(r.PodSandboxId)
	if err := inhabit(ctx, n, p, r.PodSandboxId, i); err != nil {
		return err
	}
	if _, err := n.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.PodSandboxId}); err != nil {
		return err
	}
	_, err = n.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.PodSandboxId})
	return err
}

// inhabit runs a container in the pod to its end.
func inhabit(ctx context.Context, n *node.Node, p *runtimeapi.PodSandboxConfig, pod string, i int) error {
	ends := i%2 == 0
	text := "echo hello; while :; do sleep 1000; done"
	if ends {
		text = "echo hello; echo file > /file; exit 3"
	}
	cfg := node.Script(text)
	cfg.Tty = i%3 == 2
	r, err := n.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: cfg, SandboxConfig: p})
	if err != nil {
		return err
	}
	id := r.ContainerId
	if _, err := n.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return err
	}
	if !ends && i%3 == 0 {
		x, err := n.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"echo", "inside"}})
		if err != nil || strings.TrimSpace(string(x.Stdout)) != "inside" {
			return fmt.Errorf("exec: %q: %w", x.GetStdout(), err)
		}
	}
	if !ends {
		if _, err := n.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			return err
		}
	}
	status, err := ended(ctx, n, id)
	if err != nil {
		return err
	}
	if ends {
		if err := saidHello(status); err != nil {
			return err
		}
	}
	if i%4 < 2 { // the others go with their pods
		_, err = n.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	} else {
		err = nil
	}
	return err
}

// saidHello looks at the end and at the log of a container that ended by itself.
func saidHello(status *runtimeapi.ContainerStatus) error {
	if status.ExitCode != 3 {
		return fmt.Errorf("exit code %d, %s: %s", status.ExitCode, status.Reason, status.Message)
	}
	log, err := os.ReadFile(status.LogPath)
	if err != nil {
		return err
	}
	text, err := node.Text(string(log))
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) != "hello" {
		return fmt.Errorf("log %q says %q", log, text)
	}
	return nil
}

func ended(ctx context.Context, n *node.Node, id string) (*runtimeapi.ContainerStatus, error) {
	for {
		r, err := n.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return nil, err
		}
		if r.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			return r.Status, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("container %s does not end: %w", id, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// sample is what is held at one moment, by name.
type sample map[string]float64

// measure looks at daemon and monitor from outside, and asks them for what
// cannot be seen there. All of it can be counted one by one.
func measure(n *node.Node) sample {
	t := n.T
	t.Helper()
	now := askSelf(n)
	out := sample{
		"goroutines of the daemon":  float64(now.Daemon.Goroutines),
		"goroutines of the monitor": float64(now.Monitor.Goroutines),
		"processes on record":       float64(now.Monitor.Processes),
		"mounts":                    mounts(t, n.Dir),
	}
	for name, pid := range now.pids() {
		out["descriptors of "+name] = float64(len(descriptors(t, pid)))
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		out["threads of "+name] = float64(len(threads))
	}
	return out
}

// weigh adds what is measured in bytes.
func weigh(n *node.Node, out sample) sample {
	t := n.T
	t.Helper()
	out["bytes on disk"], out["bytes on the tmpfs"] = usage(t, n.Root), usage(t, n.State)
	now := askSelf(n)
	for name, pid := range now.pids() {
		out[memoryOf+name] = resident(t, pid)
	}
	out["live heap of the daemon"], out["live heap of "+innerMonitor] = float64(now.Daemon.Heap), float64(now.Monitor.Heap)
	for _, db := range []string{filepath.Join(n.State, store.File), filepath.Join(n.Root, "metadata.db"), filepath.Join(n.Root, "snapshots/metadata.db")} {
		st, err := os.Stat(db)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(db, n.Dir+"/")
		out["size of "+name] = float64(st.Size())
		out["bytes in use of "+name] = inUse(t, db)
	}
	return out
}

// inUse is what the keys and values of a database take, in bytes. The length of
// its file, which grows by leaps, would tell of a leak late or never.
func inUse(t *testing.T, path string) (sum float64) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy.db") // the daemon has the file locked
	var last []byte
	node.Eventually(t, "nobody writes to "+path, func() bool {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		same := bytes.Equal(data, last)
		last = data
		return same
	})
	if err := os.WriteFile(to, last, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(to, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatalf("open a copy of %s: %v", path, err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			s := b.Stats()
			sum += float64(s.BranchInuse + s.LeafInuse + s.InlineBucketInuse)
			return nil
		})
	})
	if err != nil {
		t.Fatalf("read a copy of %s: %v", path, err)
	}
	return sum
}

// memoryOf begins the names of samples of memory.
const memoryOf = "memory of "

// resident is the memory of a process that no other has, in bytes.
func resident(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(string(b)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "Private_Dirty: %f kB", &kb); err == nil {
			sum += kb * 1024
		}
	}
	if sum == 0 {
		t.Fatalf("process %d has no memory: %s", pid, b)
	}
	return sum
}

// usage is what a folder takes, in bytes.
func usage(t *testing.T, dir string) (sum float64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info, err := e.Info(); err == nil {
			sum += float64(info.Size())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func mounts(t *testing.T, dir string) float64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return float64(strings.Count(string(b), " "+dir+"/"))
}

// uncollected is what the outer monitor may take before it has collected garbage
// once, which it does at 2 MiB of it; the other 2 MiB are what it starts with.
// Below, memory grows with everything that is done, and says nothing. The inner
// one and the daemon are above that in the first round, and of those two the heap
// that is in use is known as well.
const uncollected = 4 << 20

// What counts as growth: more than a thousandth of itself in each round, with
// at most one chance in a hundred that it only looks so.
const (
	tinyPart   = 0.001
	confidence = 2.9 // standard errors; Student's t for 8 degrees of freedom
)

// growth names what grew over the samples.
func growth(samples []sample) (grown []string) {
	for name := range samples[0] {
		values := make([]float64, len(samples))
		for i, s := range samples {
			if values[i] = s[name]; strings.HasPrefix(name, memoryOf) {
				values[i] = max(values[i], uncollected)
			}
		}
		slope, deviation, mean := fit(values)
		more, _, _ := fit(withoutLeap(values))
		if slope-confidence*deviation > tinyPart*mean && more > tinyPart*mean {
			grown = append(grown, fmt.Sprintf("%s: grows by %.3g in each round, give or take %.2g: %.4g", name, slope, deviation, values))
		}
	}
	return grown
}

// grownAgain are those that grew in the first rounds, too: a leak does not end,
// and what grows once by one is often the Go runtime's.
func grownAgain(first, again []string) []string {
	return slices.DeleteFunc(again, func(g string) bool {
		name, _, _ := strings.Cut(g, ": ")
		return !slices.ContainsFunc(first, func(f string) bool { return strings.HasPrefix(f, name+": ") })
	})
}

// withoutLeap takes the largest leap out of a series. A pool that got its next
// member, or a database its next page, does not grow without it; a leak does.
func withoutLeap(y []float64) []float64 {
	at, leap := 0, 0.0
	for i := 1; i < len(y); i++ {
		if d := y[i] - y[i-1]; d > leap {
			at, leap = i, d
		}
	}
	out := slices.Clone(y)
	for i := at; i < len(out); i++ {
		out[i] -= leap
	}
	return out
}

// fit is the line of least squares: its slope, the standard error of that, and
// the mean of the values.
func fit(y []float64) (slope, deviation, mean float64) {
	n := float64(len(y))
	for _, v := range y {
		mean += v / n
	}
	middle := (n - 1) / 2
	var xx, xy float64
	for i, v := range y {
		x := float64(i) - middle
		xx += x * x
		xy += x * (v - mean)
	}
	slope = xy / xx
	var rest float64
	for i, v := range y {
		e := v - mean - slope*(float64(i)-middle)
		rest += e * e
	}
	return slope, math.Sqrt(rest / (n - 2) / xx), mean
}

// The test of growth finds a leak of one thing in each round, and takes neither
// noise nor a step for one.
func TestGrowth(t *testing.T) {
	series := func(f func(i int) float64) (out []sample) {
		for i := range churnRounds {
			out = append(out, sample{"x": f(i)})
		}
		return out
	}
	noise := []float64{3, -2, 0, 4, -5, 1, -1, 2, -3, 1}
	for name, tt := range map[string]struct {
		f    func(i int) float64
		want bool
	}{
		"constant":            {func(int) float64 { return 20 }, false},
		"nothing":             {func(int) float64 { return 0 }, false},
		"noise":               {func(i int) float64 { return 1000 + noise[i] }, false},
		"shrinks":             {func(i int) float64 { return 1000 - float64(i) }, false},
		"one more each round": {func(i int) float64 { return 20 + float64(i) }, true},
		"leak under noise":    {func(i int) float64 { return 1000 + noise[i] + 5*float64(i) }, true},
		"2 kB with each pod":  {func(i int) float64 { return 8e6 + 20e3*noise[i] + 2e3*100*float64(i) }, true},
		"one step at the end": {func(i int) float64 { return 20 + math.Floor(float64(i)/9) }, false},
		"one step":            {func(i int) float64 { return 17 + 4*min(1, math.Floor(float64(i)/4)) }, false},
		"one in three rounds": {func(i int) float64 { return 20 + math.Floor(float64(i)/3) }, true},
	} {
		if got := len(growth(series(tt.f))) > 0; got != tt.want {
			t.Errorf("%s: growth %v", name, got)
		}
	}
}
