package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/bench/report"
)

// run measures all parts that were asked for.
func (b *bench) run(ctx context.Context) error {
	for _, n := range b.nodes {
		if _, err := b.serial(ctx, n, b.plan.warm); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	only := strings.Split(b.o.only, ",")
	for _, part := range []struct {
		name   string
		rounds int
		alone  bool // nothing may go on that an earlier part has left
		do     func(context.Context, *node) error
	}{{"one", b.plan.rounds, false, b.one}, {"hung", b.plan.rounds, false, b.beside}, {"many", b.plan.bursts, true, b.many}, {"rest", 1, true, b.rest}} {
		if !slices.Contains(only, part.name) {
			continue
		}
		for round := range part.rounds {
			order := slices.Clone(b.nodes)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, n := range order {
				if part.alone {
					b.leftovers(ctx)
				}
				if err := part.do(ctx, n); err != nil {
					return fmt.Errorf("%s on %s: %w", part.name, n.name, err)
				}
			}
		}
	}
	return nil
}

// leftovers waits until the nodes have no pods any more, also not as sandboxes: a kubelet
// removes those once a minute, and that is work which is not the next one's. After some
// time it gives up, and says so.
func (b *bench) leftovers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.plan.leftovers)
	defer cancel()
	for _, n := range b.nodes {
		if err := await(ctx, b.plan.leftovers, func() error { return n.empty(ctx) }); err != nil {
			b.say("%v; it goes on all the same", err)
		}
	}
}

// empty says whether the runtime of a node has sandboxes.
func (n *node) empty(ctx context.Context) error {
	if n.socket == "" {
		return nil
	}
	conn, err := grpc.NewClient("unix://"+n.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err == nil && len(list.GetItems()) > 0 {
		err = fmt.Errorf("node %s still has %d sandboxes of pods that are gone", n.name, len(list.GetItems()))
	}
	return err
}

func (b *bench) one(ctx context.Context, n *node) error {
	times, err := b.serial(ctx, n, b.plan.pods)
	if err != nil {
		return err
	}
	b.take(n, report.OnePod, times)
	b.say("%-20s %-20s until Ready %.0f ms", report.OnePod, n.variant, report.Quantile(times[report.Ready], 0.5))
	return nil
}

func (b *bench) many(ctx context.Context, n *node) error {
	times := map[string][]float64{}
	pods, err := b.apply(ctx, n, b.plan.burst, times)
	if err != nil {
		return err
	}
	if err := b.remove(ctx, pods, times); err != nil {
		return err
	}
	scenario := report.AtOnce(b.plan.burst)
	b.take(n, scenario, times)
	b.say("%-20s %-20s until Ready %.0f ms, until gone %.0f ms", scenario, n.variant, times[report.Ready][0], times[report.Gone][0])
	return nil
}

func (b *bench) take(n *node, scenario string, times map[string][]float64) {
	for _, metric := range []string{report.Ready, report.Created, report.Bound, report.OnNode, report.Gone} {
		b.results.Add(report.Key{Metric: metric, Scenario: scenario, Variant: n.variant}, "ms", times[metric]...)
	}
}

// serial has pods come and go, one after the other, and measures it, in milliseconds.
func (b *bench) serial(ctx context.Context, n *node, pods int) (map[string][]float64, error) {
	times := map[string][]float64{}
	for range pods {
		names, err := b.apply(ctx, n, 1, times)
		if err != nil {
			return nil, err
		}
		if err := b.remove(ctx, names, times); err != nil {
			return nil, err
		}
		if err := sleep(ctx, b.plan.pause); err != nil {
			return nil, err
		}
	}
	return times, nil
}

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeSelector: {kubernetes.io/hostname: %[2]s}
%[3]s
---
`

// idle is a pod of one container that does nothing.
const idle = `  containers: [{name: idle, image: "` + registry + workload + `"}]`

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// apply has kubectl make pods on a node, and waits until all are Ready.
func (b *bench) apply(ctx context.Context, n *node, pods int, times map[string][]float64) ([]string, error) {
	if pods == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.plan.patience)
	defer cancel()
	begin, names, err := b.submit(ctx, n, slices.Repeat([]string{idle}, pods))
	if err != nil {
		return nil, err
	}
	ready, err := b.watch.await(ctx, names, func(l life) time.Time { return l.ready })
	if err != nil {
		return nil, err
	}
	add := func(metric string, d time.Duration) { times[metric] = append(times[metric], milliseconds(d)) }
	add(report.Ready, ready.Sub(begin))
	if pods == 1 { // of many, the parts overlap
		l := b.watch.of(names[0])
		add(report.Created, l.created.Sub(begin))
		add(report.Bound, l.bound.Sub(l.created))
		add(report.OnNode, l.ready.Sub(l.bound))
	}
	return names, nil
}

// submit has kubectl make a pod on a node of each specification, and says when that began.
func (b *bench) submit(ctx context.Context, n *node, specs []string) (begin time.Time, names []string, err error) {
	var text strings.Builder
	for _, spec := range specs {
		b.made++
		names = append(names, fmt.Sprintf("%s-%d", n.name, b.made))
		fmt.Fprintf(&text, manifest, names[len(names)-1], n.name, spec)
	}
	file := filepath.Join(n.memory, "pods.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return begin, nil, err
	}
	begin = time.Now()
	_, err = b.cluster.Kubectl(ctx, "apply", "-f", file)
	return begin, names, err
}

// remove has kubectl delete pods, and waits until they are gone.
func (b *bench) remove(ctx context.Context, names []string, times map[string][]float64) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.plan.patience)
	defer cancel()
	begin := time.Now()
	if _, err := b.cluster.Kubectl(ctx, append([]string{"delete", "pod", "--wait=false"}, names...)...); err != nil {
		return err
	}
	gone, err := b.watch.await(ctx, names, func(l life) time.Time { return l.gone })
	if err != nil {
		return err
	}
	times[report.Gone] = append(times[report.Gone], milliseconds(gone.Sub(begin)))
	return nil
}

// rest measures a node with more and more pods to which nothing happens.
func (b *bench) rest(ctx context.Context, n *node) error {
	var pods []string
	for _, want := range b.plan.idle {
		more, err := b.apply(ctx, n, want-len(pods), map[string][]float64{})
		if err != nil {
			return err
		}
		pods = append(pods, more...)
		if err := b.look(ctx, n, report.Idle(want)); err != nil {
			return err
		}
	}
	return b.remove(ctx, pods, map[string][]float64{})
}

// look looks at a node at rest for a time.
func (b *bench) look(ctx context.Context, n *node, scenario string) error {
	if err := sleep(ctx, b.plan.settle); err != nil {
		return err
	}
	d := n.gauge()
	before, err := d.CPU()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := sleep(ctx, b.plan.watch); err != nil {
		return err
	}
	after, err := d.CPU()
	if err != nil {
		return err
	}
	cpu := 100 * float64(after-before) / float64(time.Since(begin))
	// Last, because reading it is work for the kernel, and for nobody else.
	shared, err := d.Memory()
	if err != nil {
		return err
	}
	resident, err := d.Resident()
	if err != nil {
		return err
	}
	key := func(metric string) report.Key {
		return report.Key{Metric: metric, Scenario: scenario, Variant: n.variant}
	}
	b.results.Add(key(report.Resident), "MB", resident)
	b.results.Add(key(report.Memory), "MB", shared)
	b.results.Add(key(report.CPU), "% of a core", cpu)
	b.say("%-20s %-20s %.1f MB resident, %.1f MB, %.2f%% of a core", scenario, n.variant, resident, shared, cpu)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
