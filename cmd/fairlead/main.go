// Command fairlead runs Kubernetes pods, each on the runtime that its
// RuntimeClass names. All of it is in internal/cli.
package main

import (
	"os"
	"runtime"

	"fairlead.run/internal/cli"
)

// version is set by the linker.
var version = "dev"

// The first thread is the main goroutine's alone: the kernel gives it the signals of
// the process, and they wait for as long as it hangs in a file system that does. See
// docs/design/0032-process-ids.md.
func init() { runtime.LockOSThread() }

func main() { os.Exit(cli.Main(version, os.Args[1:])) }
