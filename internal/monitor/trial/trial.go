// Package trial is the program that runs in a container by which a runtime
// handler is tried: it says what its container has and the word that it was given,
// which proves that it runs, and ends when its input does, so that it outlives
// nobody.
//
// It is part of fairlead-monitor so that no image is needed for it.
package trial

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Main returns the exit code. args are the word and the names of what to look for.
func Main(args []string) int { return run(args, os.Stdin, os.Stdout) }

func run(args []string, in io.Reader, out io.Writer) int {
	if len(args) == 0 {
		return 2
	}
	for _, name := range args[1:] {
		found := "yes"
		if err := look(name); err != nil {
			found = "no: " + err.Error()
		}
		name, _, _ = strings.Cut(name, ":")
		if _, err := fmt.Fprintln(out, name, found); err != nil {
			return 1
		}
	}
	if _, err := io.WriteString(out, args[0]+"\n"); err != nil {
		return 1
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return 1
	}
	return 0
}
