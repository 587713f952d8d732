package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci/abilities"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/runtime/oci/criu"
	"fairlead.run/internal/runtime/oci/release"
	"fairlead.run/internal/stage"
)

// Probe tries a handler: it reads the version and the features of the program
// and lets it run a container. The handler is ready if that has really run.
func (d *Driver) Probe(ctx context.Context, def runtime.Definition) pod.HandlerInfo {
	info := pod.HandlerInfo{}
	stage.Enter(ctx, "find the program")
	program, err := def.Program()
	if err != nil {
		info.Path, info.Reason = def.Path, reason(err)
		return info
	}
	info.Path = program
	stage.Enter(ctx, "ask "+program+" for its version")
	version, err := readVersion(ctx, d.cfg.from(filepath.Base(program)), program)
	if err != nil {
		info.Reason, info.Late = reason(err), late(ctx, err)
		return info
	}
	info.Runtime, info.Version = version.Name, version.Number
	info.Flaws = release.Flaws(version.Name, version.Number)
	if err := release.Floor(def.Name, version.Name, version.Number, def.MinVersion); err != nil {
		info.Reason = reason(err)
		return info
	}
	stage.Enter(ctx, "ask "+version.Name+" "+version.Number+" for its features")
	t := d.tool(def)
	t.flags, t.runtime, t.from = flagsOf(version.Name, def.Args), version.Name, d.cfg.from(version.Name)
	f := readFeatures(ctx, t.from, program)
	info.Features = version.Can(f, abilities.OfHost())
	info.SandboxProcess, info.OwnKernel = sandboxes(version.Name), sandboxes(version.Name)
	stage.Enter(ctx, "run a container")
	var all *seen
	info.OCI, all, err = d.accepted(ctx, t, candidates(f))
	if err != nil {
		info.Reason, info.Late = reason(err), late(ctx, err)
		return info
	}
	info.Ready, info.Trial = true, all.HandlerTrial
	d.features(ctx, t, all, &info)
	d.userNamespaces(ctx, t, &info)
	stage.Enter(ctx, "look for what checkpoints need")
	captured := d.noCheckpoints(ctx, version.Name, f)
	info.Features.Checkpoints, info.Features.NoCheckpoints = captured == nil, reason(captured)
	info.Features.Unsure = info.Features.Unsure || late(ctx, captured)
	return info
}

// late tells whether what failed did so because its time was over, so that it
// may succeed on a machine that is less busy.
func late(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, errdefs.ErrDeadline))
}

// userNamespaces tells whether pods of a runtime can have a user namespace.
func (d *Driver) userNamespaces(ctx context.Context, t tool, info *pod.HandlerInfo) {
	stage.Enter(ctx, "run a container in a user namespace")
	err := d.noUserNamespaces(ctx, t, info)
	info.Features.UserNamespaces, info.Features.NoUserNamespaces = err == nil, reason(err)
	info.Features.Unsure = info.Features.Unsure || late(ctx, err)
}

func (d *Driver) noUserNamespaces(ctx context.Context, t tool, info *pod.HandlerInfo) error {
	if info.OwnKernel {
		return fmt.Errorf("%s joins no user namespace that is there already; users inside its sandbox are none of the host's anyway", info.Runtime)
	}
	return d.tryUser(ctx, t, info.OCI)
}

// Fingerprint changes with the program, with what crun minds about the host's
// cgroups, and with criu.
func (d *Driver) Fingerprint(def runtime.Definition) string {
	program, err := def.Program()
	if err != nil {
		return err.Error()
	}
	info, err := os.Stat(program)
	if err != nil {
		return err.Error()
	}
	var inode uint64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintln(program, inode, info.Size(), info.ModTime().UnixNano(), cgroup.HybridControllers(cgroupRoot), criu.Fingerprint(environ()))
}

// reason is an error as a sentence of HandlerInfo.Reason, and "" where there is none.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSuffix(err.Error(), ": not found")
}

var versionLine = regexp.MustCompile(`^(\S+) version (\S+)`)

// busyTries bounds the waiting for a program that was copied a moment ago, a
// hundredth of a second each: a process that was forked meanwhile has it open
// for writing until it executes another.
const busyTries = 100

func readVersion(ctx context.Context, where from, program string) (abilities.Runtime, error) {
	out, err := runFrom(ctx, where, []string{program, "--version"})
	for range busyTries {
		if !errors.Is(err, unix.ETXTBSY) || ctx.Err() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
		out, err = runFrom(ctx, where, []string{program, "--version"})
	}
	if err != nil {
		return abilities.Runtime{}, fmt.Errorf("%s --version fails: %w", program, err)
	}
	return parseVersion(program, out)
}

func parseVersion(program string, out []byte) (abilities.Runtime, error) {
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return abilities.Runtime{}, fmt.Errorf("%s is no OCI runtime: --version prints %q and not a name, \"version\" and a number", program, tidy(first))
	}
	v := abilities.Runtime{Name: m[1], Number: m[2]}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			v.Flags = line
		}
	}
	return v, nil
}

// readFeatures asks a runtime for its features, or returns nil for one that has
// no such command.
func readFeatures(ctx context.Context, where from, program string) *features.Features {
	out, err := runFrom(ctx, where, []string{program, "features"})
	if err != nil {
		return nil
	}
	var f features.Features
	if json.Unmarshal(out, &f) != nil {
		return nil
	}
	return &f
}

// candidates are the values of ociVersion to try, the best first. 1.1.0 is what
// every runtime of the last years takes; some refuse anything newer, and those
// that are older say so in their features.
func candidates(f *features.Features) []string {
	const wanted, oldest = "1.1.0", "1.0.2"
	if f != nil && f.OCIVersionMax != "" && release.Older(f.OCIVersionMax, wanted) {
		return []string{f.OCIVersionMax, oldest}
	}
	return []string{wanted, oldest}
}

// accepted is the first ociVersion with which the runtime runs a container, and
// what was measured of that.
func (d *Driver) accepted(ctx context.Context, t tool, versions []string) (string, *seen, error) {
	if d.cfg.StandIn == "" {
		return "", nil, errors.New("there is no fairlead-monitor to try it with")
	}
	var err error
	for _, v := range versions {
		var found *seen
		if found, err = d.tryAll(ctx, t, v); err == nil {
			return v, found, nil
		}
		if !badOCI.MatchString(err.Error()) {
			return "", nil, err
		}
	}
	return "", nil, fmt.Errorf("it accepts none of the OCI versions %s: %w", strings.Join(versions, ", "), err)
}
