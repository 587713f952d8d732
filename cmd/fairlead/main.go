// Command fairlead runs Kubernetes pods, each on the runtime that its
// RuntimeClass names. All of it is in internal/cli.
package main

import (
	"os"

	"fairlead.run/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(cli.Main(version, os.Args[1:])) }
