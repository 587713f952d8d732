package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/bench/peer"
	"fairlead.run/test/bench/report"
	"fairlead.run/test/bench/site"
)

// options are the flags.
type options struct {
	programs, fairlead, plugins, tmp string
	json, page, only                 string
	short                            bool
	compare, redo                    bool
	patience                         time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.programs, "programs", "bin/bench", "folder with containerd, its shims, runc, runsc and the workload")
	flag.StringVar(&o.fairlead, "fairlead", "bin", "folder with fairlead and fairlead-monitor")
	flag.StringVar(&o.plugins, "plugins", "/usr/lib/cni", "folder with the CNI plugins")
	flag.StringVar(&o.tmp, "tmp", "/var/tmp", "folder on disk for images and containers")
	flag.StringVar(&o.json, "json", "", "write the result to this file")
	flag.StringVar(&o.page, "page", "", "write the page to this file, and the plot beside it")
	flag.StringVar(&o.only, "only", strings.Join(parts, ","), "parts to measure")
	flag.DurationVar(&o.patience, "patience", 4*time.Minute, "how long to wait for the machine to come to rest")
	flag.BoolVar(&o.short, "short", false, "only see whether it works")
	flag.BoolVar(&o.compare, "compare", false, "compare two results, named as arguments, and measure nothing")
	flag.BoolVar(&o.redo, "redo", false, "write the -page of the result in -json anew, and measure nothing")
	flag.Parse()
	if o.compare {
		os.Exit(failed(compare(flag.Args())))
	}
	if o.redo {
		os.Exit(failed(redo(o)))
	}
	if err := o.check(); err != nil {
		os.Exit(failed(err))
	}
	if os.Geteuid() != 0 {
		os.Exit(failed(fmt.Errorf("it makes namespaces, mounts and cgroups and needs root")))
	}
	os.Exit(arena.Main(o.tmp, func(a arena.Arena) int { return failed(measure(context.Background(), a, o)) }))
}

// check refuses to write a result that lacks parts: it would replace a whole one.
func (o options) check() error {
	only := strings.Split(o.only, ",")
	for _, name := range only {
		if !slices.Contains(parts, name) {
			return fmt.Errorf("-only %s: there is no such part; there are %s", name, strings.Join(parts, ", "))
		}
	}
	for _, name := range parts {
		if !slices.Contains(only, name) && (o.json != "" || o.page != "") {
			return fmt.Errorf("-only without %s: -json and -page are for a run of all parts; leave them out, or -only", name)
		}
	}
	return nil
}

func failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	return 1
}

func compare(files []string) error {
	if len(files) != 2 {
		return fmt.Errorf("-compare takes two files: the result before and the one after")
	}
	before, err := report.Read(files[0])
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no result from before (%s) to compare with: \"make bench\" keeps one there when it writes a new one, so run it before the change and after it", files[0])
	}
	if err != nil {
		return err
	}
	after, err := report.Read(files[1])
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no result (%s): run \"make bench\" first", files[1])
	}
	if err != nil {
		return err
	}
	return report.WriteChanges(os.Stdout, before, after)
}

// redo writes the page of a result that is there. Its numbers stay, and the words
// around them are those of this program.
func redo(o options) error {
	r, err := report.Read(o.json)
	if err != nil {
		return err
	}
	if o.page == "" {
		return fmt.Errorf("-redo needs -page, which it writes")
	}
	return writePage(r, o.page)
}

// bench is one run.
type bench struct {
	cfg      peer.Config
	plan     plan
	only     []string // parts
	kinds    []peer.Kind
	variants []variant
	registry *registry
	runsc    string
	results  report.Collector
	begin    time.Time
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.begin).Seconds(), fmt.Sprintf(format, args...))
}

func measure(ctx context.Context, a arena.Arena, o options) error {
	b, err := prepare(a, o)
	if err != nil {
		return err
	}
	defer b.registry.Close()
	if !o.short {
		site.Calm(ctx, o.patience, b.say)
	}
	b.begin = time.Now()
	result := &report.Result{
		Version: report.Version, Date: time.Now().UTC().Truncate(time.Second), Short: o.short,
		Machine: site.Machine(a.Dir),
	}
	failed := b.run(ctx, result)
	result.Took = time.Since(b.begin).Round(time.Second).String()
	result.Series = b.results.Series()
	if failed == nil {
		return errors.Join(write(result, o), missed(result))
	}
	if o.json == "" || len(result.Series) == 0 {
		return failed
	}
	// A quarter of an hour is not thrown away, nor taken for a whole result.
	partial := o.json + ".partial"
	return errors.Join(failed, fmt.Errorf("what was measured until then is in %s", partial), result.Write(partial))
}

// missed is an error if a limit was not kept that has to be. A short run shows nothing.
func missed(r *report.Result) error {
	var rows []string
	for _, p := range r.Promises() {
		if p.Measured && !p.Kept && p.Except == "" && !r.Short {
			rows = append(rows, p.What)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return fmt.Errorf("%d of the limits are missed: %s; the result is written all the same", len(rows), strings.Join(rows, "; "))
}

// run measures all parts.
func (b *bench) run(ctx context.Context, result *report.Result) (err error) {
	if result.Programs, err = b.together(ctx); err != nil {
		return err
	}
	err = b.part("gvisor", func() error {
		version, err := b.gvisor(ctx)
		if version != "" {
			result.Programs["runsc"] = version
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, kind := range b.kinds {
		if err := b.part("rest", func() error { return b.rest(ctx, kind) }); err != nil {
			return err
		}
	}
	if err := b.part("restart", func() error { return b.restart(ctx) }); err != nil {
		return err
	}
	err = b.part("trace", func() (err error) {
		result.Trace, err = b.trace(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return b.part("profile", func() (err error) {
		result.Profile, err = b.profile(ctx)
		return err
	})
}

// together measures everything for which the daemons take turns.
func (b *bench) together(ctx context.Context) (programs map[string]string, err error) {
	s, err := startAll(ctx, b.cfg, b.kinds...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := s.stop(); err == nil {
			err = e
		}
	}()
	if programs, err = b.versions(ctx, s); err != nil {
		return nil, err
	}
	for _, v := range b.variants { // caches are warm, links and chains are there
		if err := s.target(v, nil).Serial(ctx, 2, 1); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, s.systems[v.kind].Said())
		}
	}
	if err := b.churn(ctx, s); err != nil {
		return nil, err
	}
	var pullers []variant
	for _, k := range b.kinds {
		if k != peer.FairleadCNI {
			pullers = append(pullers, variant{k, "runc"})
		}
	}
	return programs, b.part("pull", func() error { return b.pulls(ctx, s, pullers) })
}

// parts are what -only may name.
var parts = []string{"serial", "parallel", "sustained", "pull", "gvisor", "rest", "restart", "trace", "profile"}

// part runs a part of the benchmark if it was asked for.
func (b *bench) part(name string, run func() error) error {
	if !slices.Contains(b.only, name) {
		return nil
	}
	return run()
}

// prepare finds the programs and makes the images. Without containerd, only
// Fairlead is measured.
func prepare(a arena.Arena, o options) (*bench, error) {
	b := &bench{begin: time.Now(), plan: fullPlan(), registry: newRegistry(), only: strings.Split(o.only, ",")}
	if o.short {
		b.plan = shortPlan()
	}
	plugins, err := filepath.Abs(o.plugins)
	if err != nil {
		return nil, err
	}
	if b.runsc, err = filepath.Abs(filepath.Join(o.programs, "runsc")); err != nil {
		return nil, err
	}
	b.cfg = peer.Config{Arena: a, Plugins: plugins, Registry: b.registry, PauseImage: pauseImage, Programs: map[string]string{}}
	for name, dir := range map[string]string{
		"fairlead": o.fairlead, "fairlead-monitor": o.fairlead,
		"containerd": o.programs, "containerd-shim-runc-v2": o.programs, "runc": o.programs, "idle": o.programs, "crun-1.1": o.programs,
	} {
		if b.cfg.Programs[name], err = filepath.Abs(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	if b.cfg.Programs["crun"], err = exec.LookPath("crun"); err != nil {
		return nil, fmt.Errorf("find crun (Debian: apt-get install crun): %w", err)
	}
	b.kinds = []peer.Kind{peer.Containerd, peer.FairleadCNI, peer.FairleadBuiltin}
	if _, err := os.Stat(b.cfg.Programs["containerd"]); err != nil {
		b.say("LEFT OUT: containerd, which \"make bench\" builds: %v", err)
		b.kinds = b.kinds[1:]
	}
	if _, err := os.Stat(b.cfg.Programs["runc"]); err != nil {
		if b.cfg.Programs["runc"], err = exec.LookPath("runc"); err != nil {
			return nil, fmt.Errorf("find runc, which \"make bench\" builds: %w", err)
		}
	}
	b.variants = allVariants(b.kinds)
	return b, serveWorkload(b.registry.Registry, b.cfg.Programs["idle"])
}

func write(r *report.Result, o options) error {
	for _, p := range r.Promises() {
		fmt.Fprintf(os.Stderr, "%-60s %8.3f  limit %g %s: %s\n", p.What, p.Got, p.Limit, p.Unit, p.Verdict())
	}
	if o.json != "" {
		if err := r.Write(o.json); err != nil {
			return err
		}
	}
	if o.page == "" {
		return nil
	}
	return writePage(r, o.page)
}

// writePage writes a page, and its plot beside it.
func writePage(r *report.Result, page string) error {
	plot := page[:len(page)-len(filepath.Ext(page))] + ".svg"
	if err := os.WriteFile(plot, []byte(r.Plot()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(r.Page(filepath.Base(plot))), 0o644)
}
