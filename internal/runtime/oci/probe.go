package oci

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci/cgroup"
)

// Probe tries a handler: it reads the version and the features of the program
// and lets it start a container whose own program does not exist. The handler
// is ready if the runtime gets as far as to miss that.
func (d *Driver) Probe(ctx context.Context, def runtime.Definition) pod.HandlerInfo {
	info := pod.HandlerInfo{}
	program, err := def.Program()
	if err != nil {
		info.Path, info.Reason = def.Path, reason(err)
		return info
	}
	info.Path = program
	version, err := readVersion(ctx, program)
	if err != nil {
		info.Reason = reason(err)
		return info
	}
	info.Runtime, info.Version = version.name, version.number
	f := readFeatures(ctx, program)
	info.Features = version.abilities(f, hostAbilities())
	t := tool{def: def, root: d.root(def), systemd: d.cfg.Systemd}
	info.OCI, err = d.accepted(ctx, t, candidates(f))
	if err != nil {
		info.Reason = reason(err)
		return info
	}
	info.Ready = true
	return info
}

// Fingerprint changes with the program and with what crun minds about the
// host's cgroups.
func (d *Driver) Fingerprint(def runtime.Definition) string {
	program, err := def.Program()
	if err != nil {
		return err.Error()
	}
	info, err := os.Stat(program)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(program, info.Size(), info.ModTime().UnixNano(), cgroup.HybridControllers(cgroupRoot))
}

// reason is an error as a sentence of HandlerInfo.Reason.
func reason(err error) string {
	return strings.TrimSuffix(err.Error(), ": not found")
}

// version is what a program says about itself.
type version struct {
	name   string // "runc", "crun"
	number string // "1.1.5+ds1"
	flags  string // "+SYSTEMD +SELINUX ...", of crun
}

var versionLine = regexp.MustCompile(`^(\S+) version (\S+)`)

func readVersion(ctx context.Context, program string) (version, error) {
	out, err := runArgv(ctx, []string{program, "--version"})
	if err != nil {
		return version{}, fmt.Errorf("%s --version fails: %w", program, err)
	}
	return parseVersion(program, out)
}

func parseVersion(program string, out []byte) (version, error) {
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return version{}, fmt.Errorf("%s is no OCI runtime: --version prints %q and not a name, \"version\" and a number", program, tidy(first))
	}
	v := version{name: m[1], number: m[2]}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			v.flags = line
		}
	}
	return v, nil
}

// candidates are the values of ociVersion to try, the best first. 1.1.0 is what
// every runtime of the last years takes; some refuse anything newer, and those
// that are older say so in their features.
func candidates(f *features.Features) []string {
	const wanted, oldest = "1.1.0", "1.0.2"
	if f != nil && f.OCIVersionMax != "" && older(f.OCIVersionMax, wanted) {
		return []string{f.OCIVersionMax, oldest}
	}
	return []string{wanted, oldest}
}

// older compares versions of three numbers; what follows them is left out.
func older(a, b string) bool {
	x, y := numbers(a), numbers(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}

// numbers are the first three of a version; those that it lacks are 0.
func numbers(version string) (n [3]int) {
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &n[0], &n[1], &n[2])
	return n
}

// accepted is the first ociVersion with which the runtime gets a container to
// the point of starting its program.
func (d *Driver) accepted(ctx context.Context, t tool, versions []string) (string, error) {
	var err error
	for _, v := range versions {
		if err = d.try(ctx, t, v); err == nil {
			return v, nil
		}
		if !badOCI.MatchString(err.Error()) {
			return "", err
		}
	}
	return "", fmt.Errorf("it accepts none of the OCI versions %s: %w", strings.Join(versions, ", "), err)
}
