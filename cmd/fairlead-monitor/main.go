// Command fairlead-monitor is the parent of a node's containers, and, as
// "fairlead-monitor pause", process 1 of a pod that shares its PID namespace.
package main

import (
	"os"

	"fairlead.run/internal/monitor"
	"fairlead.run/internal/monitor/pause"
)

// version is set by the linker.
var version = "dev"

func main() {
	// First, and without any of the rest: there may be one for each pod.
	if len(os.Args) > 1 && os.Args[1] == "pause" {
		os.Exit(pause.Main())
	}
	os.Exit(monitor.Main(version, os.Args[1:]))
}
