// Command critest runs cri-tools' validation suite against Fairlead, or against
// containerd to compare, and writes what became of its specs:
//
//	critest -suite v1.36.0 -program bin/critest/critest -handler crun -output bin/critest/v1.36.0
//
// Arguments after the flags are flags of the suite itself. `make critest` builds
// what this needs, and calls it. Daemon and suite are in namespaces of their own,
// and all images come from this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/critest/runs"
	"fairlead.run/test/e2e/results"
)

// options are the flags.
//
// Larger than other structs: it has one field for each flag.
type options struct {
	program, ginkgo, busybox, standin string
	fairlead, peers, plugins          string
	suite, runtime, handler           string
	focus, skip                       string
	output, causes, tmp               string
	more                              []string // for the suite
	procs                             int
	nri, limit                        time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.program, "program", "", "the suite's program, critest")
	flag.StringVar(&o.ginkgo, "ginkgo", "", "Ginkgo's program, which -procs above 1 needs")
	flag.StringVar(&o.busybox, "busybox", "", "a busybox for the images whose shell does not prefer its own tools (Debian: package busybox)")
	flag.StringVar(&o.standin, "standin", "", "the program for the other images (test/e2e/standin)")
	flag.StringVar(&o.fairlead, "fairlead", "bin", "folder of fairlead and fairlead-monitor")
	flag.StringVar(&o.peers, "peers", "bin/bench", "folder of containerd, its shims, runsc, runc and what makes crun suit containerd; runc is taken from PATH where it is not there")
	flag.StringVar(&o.plugins, "plugins", "/usr/lib/cni", "folder of the CNI plugins, for containerd")
	flag.StringVar(&o.suite, "suite", "", "the suite's release, for the result")
	flag.StringVar(&o.runtime, "runtime", runs.Fairlead, "what is tested: "+runs.Fairlead+" or "+runs.Containerd)
	flag.StringVar(&o.handler, "handler", "runc", "the handler of all pods: runc, crun or runsc, and on Fairlead runc-shim or runsc-shim")
	flag.StringVar(&o.focus, "focus", "", "run only specs that this regular expression fits")
	flag.StringVar(&o.skip, "skip", "", "leave out specs that this regular expression fits")
	flag.StringVar(&o.output, "output", "", "folder for the result and for what the programs say")
	flag.StringVar(&o.causes, "causes", "test/critest/causes.json", "file with the causes of specs that are known not to pass")
	flag.StringVar(&o.tmp, "tmp", "/var/tmp", "folder on a disk or tmpfs for images and containers; no overlay")
	flag.IntVar(&o.procs, "procs", 1, "how many specs run at once")
	flag.DurationVar(&o.nri, "nri-timeout", 0, "how long an NRI plugin may take to answer; 0 is the runtime's default")
	flag.DurationVar(&o.limit, "limit", 2*time.Hour, "how long the suite may take")
	flag.Parse()
	o.more = flag.Args()
	if err := o.check(); err != nil {
		os.Exit(failed(err))
	}
	os.Exit(arena.Main(o.tmp, func(a arena.Arena) int { return failed(o.run(context.Background(), a)) }))
}

func failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "critest:", err)
	return 1
}

// check makes paths absolute, too, since the suite runs elsewhere.
func (o *options) check() error {
	if os.Geteuid() != 0 {
		return errors.New("it makes namespaces, mounts and cgroups and needs root")
	}
	if o.runtime != runs.Fairlead && o.runtime != runs.Containerd {
		return fmt.Errorf("-runtime %s: there are %s and %s", o.runtime, runs.Fairlead, runs.Containerd)
	}
	if below, byShim := strings.CutSuffix(o.handler, shim); byShim && (o.runtime == runs.Containerd || shims[o.handler] == "") {
		return fmt.Errorf("-handler %s: only Fairlead has %s and %s; containerd runs all by shims: -handler %s", o.handler, "runc"+shim, runsc+shim, below)
	}
	for name, path := range map[string]*string{
		"program": &o.program, "busybox": &o.busybox, "standin": &o.standin, "output": &o.output, "ginkgo": &o.ginkgo,
		"fairlead": &o.fairlead, "peers": &o.peers, "plugins": &o.plugins,
	} {
		if *path == "" && (name != "ginkgo" || o.procs > 1) {
			return fmt.Errorf("-%s is missing; \"make critest\" knows all flags", name)
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}

// run is everything, inside of the arena.
func (o *options) run(ctx context.Context, a arena.Arena) error {
	causes, err := runs.ReadCauses(o.causes)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return err
	}
	r := runs.Run{Suite: o.suite, Runtime: o.runtime, Handler: o.handler, Cgroup: hierarchy(), NRITimeout: o.nri.String()}
	begin := time.Now()
	suiteErr, err := o.suiteOn(ctx, a, &r)
	if err != nil {
		return err
	}
	fmt.Printf("%s in %v:\n", r, time.Since(begin).Round(time.Second))
	if err := o.write(r); err != nil {
		return err
	}
	return verdict(r, causes, suiteErr)
}

// write writes the result of a run as it comes: of all specs, or of some to those
// of others.
func (o *options) write(r runs.Run) error {
	path := filepath.Join(o.output, r.File())
	if len(o.more) > 0 {
		return nil
	}
	if o.focus == "" && o.skip == "" {
		return r.Write(path)
	}
	err := r.Add(path)
	if errors.Is(err, runs.ErrOther) {
		fmt.Println(err)
		return nil
	}
	return err
}

// verdict prints what has not passed, and fails for what has no known cause.
func verdict(r runs.Run, causes runs.Causes, suiteErr error) error {
	n := r.Specs.Count()
	unknown := 0
	for _, s := range r.Specs {
		if s.State == results.Passed {
			continue
		}
		cause := causes.Of(s.Name, r)
		if cause == "" {
			unknown++
			cause = "NO KNOWN CAUSE: " + s.Why
		}
		fmt.Printf("%s: %s\n\t%s\n", s.State, s.Name, cause)
	}
	fmt.Printf("%d ran: %d passed, %d skipped themselves, %d failed\n",
		len(r.Specs), n[results.Passed], n[results.Skipped], n[results.Failed])
	switch {
	case n[results.Passed] == 0:
		return fmt.Errorf("no spec has passed (the suite: %v)", suiteErr)
	case unknown > 0:
		return fmt.Errorf("%d specs have not passed for a cause that nobody has named", unknown)
	case n[results.Failed] == 0 && suiteErr != nil:
		return fmt.Errorf("the suite ended with %w", suiteErr)
	}
	return nil
}

// hierarchy is the version of cgroups here.
func hierarchy() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "v2"
	}
	return "v1"
}

func arch() string { return runtime.GOARCH }
