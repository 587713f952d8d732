// Command docgen writes the pages of the user guide that follow from the code:
// the reference of commands, and the matrix of fields that fairlead run
// honours.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docgen FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cli.md"), []byte(reference(cli.Command(""))), 0o644); err != nil {
		return err
	}
	path := filepath.Join(dir, "run.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out, err := between(string(text), matrix())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(out), 0o644)
}

// What is between the marks is docgen's.
const (
	begin = "<!-- generated: fields -->\n"
	end   = "<!-- end of what is generated -->\n"
)

func between(text, generated string) (string, error) {
	head, rest, ok := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", errors.New("the marks of the generated part are missing")
	}
	return head + begin + generated + end + tail, nil
}
