package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/bench/peer"
	"fairlead.run/test/critest/runs"
	"fairlead.run/test/e2e/results"
	"fairlead.run/test/images"
)

// suiteOn starts the daemon, runs the suite on it, and notes in r what became of
// the specs. The first error is the suite's own, which a failed spec is enough for.
func (o *options) suiteOn(ctx context.Context, a arena.Arena, r *runs.Run) (suiteErr, err error) {
	registry := images.NewRegistry()
	defer registry.Close()
	if err := push(ctx, registry, o.busybox, o.standin); err != nil {
		return nil, err
	}
	cfg := peer.Config{
		Arena: a, Plugins: o.plugins, Registry: registry, Mirror: true, PauseImage: pause, NRITimeout: o.nri,
	}
	if cfg.Programs, err = o.programs(); err != nil {
		return nil, err
	}
	// The root of a pod with a user namespace goes through this folder.
	if err := os.Chmod(filepath.Dir(a.Memory), 0o711); err != nil {
		return nil, err
	}
	if err := o.addShim(a, &cfg); err != nil {
		return nil, err
	}
	kind := peer.FairleadBuiltin
	if o.runtime == runs.Containerd {
		kind = peer.Containerd
	}
	s, err := peer.Start(ctx, kind, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, clear(ctx, s), s.Stop(), o.keep(s.Output, r)) }()
	if err := o.note(ctx, s, cfg.Programs, r); err != nil {
		return nil, err
	}
	report := o.beside(r, ".ginkgo")
	if suiteErr, err = o.suiteIn(ctx, s, a, report); err != nil {
		return nil, err
	}
	if r.Specs, err = results.Read(report); err != nil {
		return nil, fmt.Errorf("%w (the suite: %v; what it said is beside it)", err, suiteErr)
	}
	return suiteErr, nil
}

// programs finds all programs by name.
func (o *options) programs() (map[string]string, error) {
	p := map[string]string{}
	for name, dir := range map[string]string{
		"fairlead": o.fairlead, "containerd": o.peers, runcShim: o.peers, runscShim: o.peers, "crun-1.1": o.peers, "runc": o.peers,
	} {
		p[name] = filepath.Join(dir, name)
	}
	if o.handler == runsc {
		// Only then: a runtime that is not tested need not be tried.
		p[runsc] = filepath.Join(o.peers, runsc)
	}
	var err error
	if p["crun"], err = exec.LookPath("crun"); err != nil {
		return nil, fmt.Errorf("find crun (Debian: apt-get install crun): %w", err)
	}
	if _, err := os.Stat(p["runc"]); err != nil {
		if p["runc"], err = exec.LookPath("runc"); err != nil {
			return nil, fmt.Errorf("find runc (Debian: apt-get install runc): %w", err)
		}
	}
	return p, nil
}

// note notes the versions of what is tested.
func (o *options) note(ctx context.Context, s *peer.System, programs map[string]string, r *runs.Run) error {
	v, err := s.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fmt.Errorf("ask the runtime for its version: %w", err)
	}
	r.Programs = []string{v.GetRuntimeName() + " " + v.GetRuntimeVersion()}
	below, byShim := strings.CutSuffix(o.handler, shim)
	tested := []string{programs[below]}
	if byShim {
		tested = append(tested, programs[shims[o.handler]])
	}
	for _, program := range tested {
		version, err := versionOf(ctx, program)
		if err != nil {
			return fmt.Errorf("ask %s for its version: %w", program, err)
		}
		r.Programs = append(r.Programs, version)
	}
	status, err := s.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("ask the runtime for its status: %w", err)
	}
	// It has the reasons for what a handler cannot do, and with that for specs that skip themselves.
	if err := os.WriteFile(o.beside(r, ".status"), []byte(fmt.Sprintln(status)), 0o644); err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	r.Kernel = unix.ByteSliceToString(u.Release[:])
	return nil
}

// versionOf is a program's name and version. Those of gVisor do not tell their own
// where Go has built them, but Go has noted it.
func versionOf(ctx context.Context, program string) (string, error) {
	name := filepath.Base(program)
	module := modules[name]
	if module == "" {
		out, err := exec.CommandContext(ctx, program, "--version").Output()
		first, _, _ := strings.Cut(string(out), "\n")
		return first, err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", err
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return name + " version " + m.Version, nil
		}
	}
	return "", fmt.Errorf("it is not of module %s", module)
}

// suiteIn runs the suite where the daemon is.
func (o *options) suiteIn(ctx context.Context, s *peer.System, a arena.Arena, report string) (suiteErr, err error) {
	argv := []string{
		o.program, "-runtime-endpoint", "unix://" + s.Socket, "-runtime-handler", o.handler,
		"-ginkgo.json-report", report, "-ginkgo.no-color", "-ginkgo.timeout", o.limit.String(),
	}
	if o.procs > 1 {
		argv = append(argv, "-parallel", strconv.Itoa(o.procs))
	}
	if o.focus != "" {
		argv = append(argv, "-ginkgo.focus", o.focus)
	}
	if o.skip != "" {
		argv = append(argv, "-ginkgo.skip", o.skip)
	}
	// Its releases up to 1.36 have no specs for plugins.
	help, _ := exec.CommandContext(ctx, o.program, "-help").CombinedOutput()
	if bytes.Contains(help, []byte("-nri-socket")) {
		argv = append(argv, "-nri-socket", s.NRI)
	}
	argv = append(argv, o.more...)
	place, err := arena.PlaceOf(s.Pid())
	if err != nil {
		return nil, err
	}
	defer place.Close()
	said, err := os.Create(strings.TrimSuffix(report, ".ginkgo") + ".log")
	if err != nil {
		return nil, err
	}
	defer said.Close()
	temp := filepath.Join(a.Dir, "tmp")
	if err := os.Mkdir(temp, 0o777); err != nil {
		return nil, err
	}
	cmd := place.Command(argv...)
	// Ginkgo asks go for the module it is in, which would wait for a network that is not there.
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, "GOPROXY=off", "PATH="+filepath.Dir(o.ginkgo)+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = said, said
	return cmd.Run(), nil
}

// keep copies what the daemon said to beside the result.
func (o *options) keep(output string, r *runs.Run) error {
	data, err := os.ReadFile(output)
	if err != nil {
		return err
	}
	return os.WriteFile(o.beside(r, ".daemon"), data, 0o644)
}

// beside is a file beside the result.
func (o *options) beside(r *runs.Run, suffix string) string {
	return filepath.Join(o.output, strings.TrimSuffix(r.File(), ".json")+suffix)
}

// clear removes the pods that specs which failed have left.
func clear(ctx context.Context, s *peer.System) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	list, err := s.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("look for pods that are left: %w", err)
	}
	var failed []error
	for _, p := range list.GetItems() {
		fmt.Printf("left by the specs: pod %s %s\n", p.GetId(), p.GetMetadata().GetName())
		_, err := s.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.GetId()})
		_, err2 := s.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.GetId()})
		failed = append(failed, err, err2)
	}
	return errors.Join(failed...)
}
