package main

import (
	"fmt"
	"os"
	"path/filepath"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/bench/peer"
)

// runsc is gVisor's handler.
const runsc = "runsc"

// shim is the end of the names of handlers that are shims.
const shim = "-shim"

const (
	runcShim  = "containerd-shim-runc-v2"
	runscShim = "containerd-shim-runsc-v1"
)

// shims are the programs of handlers that are shims.
var shims = map[string]string{"runc" + shim: runcShim, runsc + shim: runscShim}

// modules are those that programs are of.
var modules = map[string]string{
	runsc: "gvisor.dev/gvisor", runscShim: "gvisor.dev/gvisor", runcShim: "github.com/containerd/containerd/v2",
}

// addShim gives Fairlead the handler that is tested if it is a shim.
func (o *options) addShim(a arena.Arena, cfg *peer.Config) error {
	program := cfg.Programs[shims[o.handler]]
	switch shims[o.handler] {
	case runcShim:
		cfg.Handlers = fmt.Sprintf("\n[handlers.%s]\ntype = \"shim\"\nruntime_type = \"io.containerd.runc.v2\"\npath = %q\n"+
			"[handlers.%[1]s.options]\nBinaryName = %[3]q\n", o.handler, program, cfg.Programs["runc"])
	case runscShim:
		file := filepath.Join(a.Dir, "runsc.toml")
		cfg.Programs[runsc] = filepath.Join(o.peers, runsc)
		// What handlers of runsc get from Fairlead by itself.
		text := fmt.Sprintf("binary_name = %q\n[runsc_config]\noverlay2 = \"none\"\nallow-suid = \"true\"\noci-seccomp = \"true\"\n", cfg.Programs[runsc])
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		cfg.Handlers = fmt.Sprintf("\n[handlers.%s]\ntype = \"shim\"\nruntime_type = \"io.containerd.runsc.v1\"\npath = %q\nconfig_path = %q\n"+
			"[handlers.%[1]s.options]\nTypeUrl = \"io.containerd.runsc.v1.options\"\n", o.handler, program, file)
	}
	return nil
}
