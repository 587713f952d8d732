package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci"
	"fairlead.run/internal/stage"
	"fairlead.run/internal/taskapi"
)

// versionLine is in what a shim prints for -v.
var versionLine = regexp.MustCompile(`(?m)^\s*Version:\s+(\S+)`)

// probe tries a handler: its shim is started and told to run a container of ours.
func (d *Driver) probe(ctx context.Context, o *oci.Driver, def runtime.Definition) pod.HandlerInfo {
	info := pod.HandlerInfo{Path: def.Path, Runtime: def.RuntimeType, SandboxProcess: true, OwnKernel: def.RuntimeType != v1alpha1.RuncShim}
	stage.Enter(ctx, "find the program")
	program, err := def.Program()
	if err != nil {
		info.Reason = oci.Reason(err)
		return info
	}
	info.Path = program
	stage.Enter(ctx, "ask "+program+" for its version")
	// A shim need not know the flag.
	if out, err := oci.Run(ctx, program, "-v"); err == nil {
		if m := versionLine.FindSubmatch(out); m != nil {
			info.Version = string(m[1])
		}
	}
	stage.Enter(ctx, "ask for the features of what it runs")
	f := d.features(ctx, def, program)
	stage.Enter(ctx, "start the shim, and run a container")
	if err := o.Try(ctx, def, f, &info); err != nil {
		info.Reason, info.Late = oci.Reason(err), oci.Late(ctx, err)
		return info
	}
	info.Ready = true
	info.Features.NoCheckpoints = "shims are not asked for any"
	return info
}

// features are those of the OCI runtime below runc's shim, and what others say of
// themselves. Nil means that nothing is known.
func (d *Driver) features(ctx context.Context, def runtime.Definition, program string) *features.Features {
	if def.RuntimeType == v1alpha1.RuncShim {
		below := runtime.Definition{Name: "runc", Search: def.Search}
		below.Path, _ = def.Options["BinaryName"].(string)
		path, err := below.Program()
		if err != nil {
			return nil
		}
		return oci.ReadFeatures(ctx, path)
	}
	out, err := oci.Run(ctx, program, "-info")
	if err != nil {
		return nil
	}
	told, err := taskapi.ParseInfo(out)
	var f features.Features
	if err != nil || json.Unmarshal(told.Features, &f) != nil {
		return nil
	}
	return &f
}

// fingerprint changes with the program, with its configuration file, and with
// runc for that one's shim.
func fingerprint(def runtime.Definition) string {
	program, err := def.Program()
	if err != nil {
		return err.Error()
	}
	seen := look(program) + look(def.ConfigPath)
	if def.RuntimeType == v1alpha1.RuncShim {
		below := runtime.Definition{Name: "runc", Search: def.Search}
		below.Path, _ = def.Options["BinaryName"].(string)
		path, err := below.Program()
		seen += look(path) + oci.Reason(err)
	}
	return seen
}

// look tells what a file is, as far as another trial may end differently.
func look(path string) string {
	info, err := os.Stat(path)
	if path == "" || err != nil {
		return path + "-"
	}
	return fmt.Sprint(path, info.Size(), info.ModTime().UnixNano())
}
