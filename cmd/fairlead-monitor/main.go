// Command fairlead-monitor is the parent of a node's containers. As
// "fairlead-monitor pause" it is process 1 of a pod that shares its PID namespace,
// or of a sandbox, and as "fairlead-monitor stand-in" what a container inside a
// sandbox has for a process on the host. As "fairlead-monitor trial" it is what runs
// in a container by which a runtime handler is tried.
// As "fairlead-monitor shim" it starts containers by containerd shims, and is what
// these have for a process.
package main

import (
	"os"
	"runtime"
	"strings"

	"fairlead.run/internal/monitor"
	"fairlead.run/internal/monitor/pause"
	"fairlead.run/internal/monitor/shimcmd"
	"fairlead.run/internal/monitor/standin"
	"fairlead.run/internal/monitor/trial"
)

// version is set by the linker.
var version = "dev"

// The first thread is the main goroutine's alone, which waits for signals: the kernel
// gives those of the process to it, and they wait for as long as it hangs in a file
// system that does. Nobody else would see the end of a container. See
// docs/design/0032-process-ids.md.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		runtime.UnlockOSThread() // not the monitor itself
	}
	// First, and without any of the rest: there may be one for each pod or container.
	if len(os.Args) > 1 && os.Args[1] == "pause" {
		os.Exit(pause.Main())
	}
	if len(os.Args) > 1 && os.Args[1] == "trial" {
		os.Exit(trial.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "stand-in" {
		os.Exit(standin.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "shim" {
		os.Exit(shimcmd.Main(os.Args[2:]))
	}
	if shimcmd.IsPublish(os.Args) {
		os.Exit(shimcmd.Publish())
	}
	os.Exit(monitor.Main(version, os.Args[1:]))
}
