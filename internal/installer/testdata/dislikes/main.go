// Dislikes is a containerd that does not take the configuration that it is asked to read.
package main

import (
	"fmt"
	"os"
)

func main() {
	if os.Args[len(os.Args)-1] == "dump" {
		fmt.Fprintln(os.Stderr, "line 1: it is not to its taste")
	}
	os.Exit(1)
}
