package installer

import (
	"os"
	"slices"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/restart"
)

// A command is looked for on the node, whatever this container has on its PATH, and one
// that is not there is refused before anything is written.
func TestRestartCommandIsOfTheNode(t *testing.T) {
	n := newNode(t, 2)
	n.write("usr/local/sbin/bounce", "#!/bin/sh\n")
	n.write("usr/bin/text", "no program\n")
	if err := os.Chmod(n.path("usr/local/sbin/bounce"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/local/sbin", n.path("sbin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/local/sbin/bounce", n.path("usr/bin/again")); err != nil {
		t.Fatal(err)
	}
	for word, is := range map[string]string{
		"bounce": "/usr/local/sbin/bounce", "/sbin/bounce": "/sbin/bounce", "again": "/usr/bin/again",
		"true": "", "/bin/true": "", "text": "", "sbin/bounce": "", "/usr/bin": "",
	} {
		i, err := New(Options{Root: n.root, Distribution: "containerd", Restart: "command", RestartCommand: []string{word, "containerd"}}, n.installer().log)
		if is == "" {
			if err == nil || fault.Of(err) != payload.ConfigurationProblem {
				t.Errorf("%s: %v", word, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if c, ok := i.restarter.(restart.Command); !ok || !slices.Equal(c.Args, []string{is, "containerd"}) || c.Root != n.root {
			t.Errorf("%s: %+v", word, i.restarter)
		}
	}
}
