// Command nodes measures what a node of a cluster does: fairlead node, which is agent
// and runtime in one process, beside a kubelet with containerd. Both are nodes of one
// cluster with a real API server, and take turns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/bench/report"
	"fairlead.run/test/bench/site"
	"fairlead.run/test/e2e/cluster"
)

type options struct {
	programs, peers, fairlead, plugins string
	tmp, output, json, page            string
	short, redo                        bool
	only, stick                        string
	patience                           time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.programs, "programs", "bin/e2e", "folder with the Kubernetes programs, as make e2e builds them")
	flag.StringVar(&o.peers, "peers", "bin/bench", "folder with containerd, its shim, runc and the workload")
	flag.StringVar(&o.fairlead, "fairlead", "bin", "folder with fairlead and fairlead-monitor")
	flag.StringVar(&o.plugins, "plugins", "/usr/lib/cni", "folder with the CNI plugins")
	flag.StringVar(&o.tmp, "tmp", "/var/tmp", "folder on disk for images and containers")
	flag.StringVar(&o.output, "output", "bin/e2e/nodes", "folder for what the programs say")
	flag.StringVar(&o.json, "json", "", "write the result to this file")
	flag.StringVar(&o.page, "page", "", "write the page to this file")
	flag.StringVar(&o.only, "only", strings.Join(parts, ","), "parts to measure")
	flag.DurationVar(&o.patience, "patience", 4*time.Minute, "how long to wait for the machine to come to rest")
	flag.BoolVar(&o.short, "short", false, "only see whether it works")
	flag.BoolVar(&o.redo, "redo", false, "write the -page of the result in -json anew, and measure nothing")
	flag.StringVar(&o.stick, "stick", "", "do nothing but keep a file system that never answers on this folder (the benchmark itself starts that)")
	flag.Parse()
	if o.stick != "" {
		os.Exit(failed(stick(o.stick)))
	}
	if o.redo {
		os.Exit(failed(redo(o)))
	}
	if os.Geteuid() != 0 {
		os.Exit(failed(errors.New("it makes namespaces, mounts and cgroups and needs root")))
	}
	if err := o.absolute(); err != nil {
		os.Exit(failed(err))
	}
	os.Exit(arena.Main(o.tmp, func(a arena.Arena) int { return failed(measure(context.Background(), a, o)) }))
}

func failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "nodes:", err)
	return 1
}

// absolute makes paths ones that hold in whatever folder a program runs.
func (o *options) absolute() (err error) {
	for _, p := range []*string{&o.programs, &o.peers, &o.fairlead, &o.output} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	for _, file := range []string{
		filepath.Join(o.programs, "kube-apiserver"), filepath.Join(o.programs, "kubelet"), filepath.Join(o.peers, "containerd"),
		filepath.Join(o.fairlead, "fairlead"), filepath.Join(o.plugins, "portmap"),
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%w; \"make bench-node\" builds what is missing", err)
		}
	}
	return nil
}

func redo(o options) error {
	r, err := report.Read(o.json)
	if err != nil {
		return err
	}
	return os.WriteFile(o.page, []byte(r.NodePage()), 0o644)
}

func measure(ctx context.Context, a arena.Arena, o options) (err error) {
	b := &bench{o: o, begin: time.Now(), plan: fullPlan()}
	if o.short {
		b.plan = shortPlan()
	} else {
		site.Calm(ctx, o.patience, b.say)
	}
	result := &report.Result{
		Version: report.Version, Date: time.Now().UTC().Truncate(time.Second), Short: o.short, Machine: site.Machine(a.Dir),
	}
	if result.Programs, err = versions(ctx, o); err != nil {
		return err
	}
	b.begin = time.Now()
	if err := b.start(ctx, a); err != nil {
		return errors.Join(err, b.stop())
	}
	if err := errors.Join(b.run(ctx), b.stop()); err != nil {
		return err
	}
	result.Took, result.Series = time.Since(b.begin).Round(time.Second).String(), b.results.Series()
	return b.write(result)
}

// write writes the result, and says what was promised and is not so.
func (b *bench) write(r *report.Result) error {
	var missed []string
	for _, p := range r.NodePromises() {
		fmt.Fprintf(os.Stderr, "%-60s %8.3f  limit %g %s: %s\n", p.What, p.Got, p.Limit, p.Unit, p.Verdict())
		if p.Measured && !p.Kept && !r.Short {
			missed = append(missed, p.What)
		}
	}
	if b.o.json != "" {
		if err := r.Write(b.o.json); err != nil {
			return err
		}
	}
	if b.o.page != "" {
		if err := os.WriteFile(b.o.page, []byte(r.NodePage()), 0o644); err != nil {
			return err
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d of the limits are missed: %s; the result is written all the same", len(missed), strings.Join(missed, "; "))
	}
	return nil
}

// versions asks the programs what they are.
func versions(ctx context.Context, o options) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range []struct{ dir, name, flag string }{
		{o.programs, "kubelet", "--version"}, {o.peers, "containerd", "--version"}, {o.peers, "runc", "--version"}, {o.fairlead, "fairlead", "version"},
	} {
		text, err := exec.CommandContext(ctx, filepath.Join(p.dir, p.name), p.flag).Output()
		if err != nil {
			return nil, fmt.Errorf("ask %s for its version: %w", p.name, err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		out[p.name] = versionIn(line)
	}
	return out, nil
}

// versionIn finds the version in what a program says of itself: the first word that
// looks like one, or the last word.
func versionIn(line string) string {
	version := ""
	for w := range strings.FieldsSeq(line) {
		version = w
		if strings.HasPrefix(w, "v") && strings.Count(w, ".") > 1 {
			break
		}
	}
	return version
}

// bench is one run.
type bench struct {
	o       options
	plan    plan
	cluster *cluster.Cluster
	nodes   []*node
	watch   *watch
	results report.Collector
	begin   time.Time
	made    int // pods so far, for their names
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.begin).Seconds(), fmt.Sprintf(format, args...))
}
