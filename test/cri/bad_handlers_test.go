package cri

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/test/node"
)

// script writes a program that says it is a runtime, and then does something.
func script(t *testing.T, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	text := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'badrun version 1.0.0'; exit; fi\n" + body + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// watched is a node with a pod that nothing may disturb.
func watched(t *testing.T) (n *node.Node, undisturbed func(t *testing.T)) {
	t.Helper()
	n = node.Start(t, "")
	n.Pull(node.Busybox)
	c := n.RunPod(node.Handlers[0]).Start(node.Script("sleep 1000"))
	began, before := c.Status().StartedAt, fmt.Sprint(handlerStates(n))
	return n, func(t *testing.T) {
		t.Helper()
		if out := c.Exec("echo", "alive"); out != "alive\n" || c.Status().StartedAt != began {
			t.Errorf("the pod on another handler: %q", out)
		}
		if now := fmt.Sprint(handlerStates(n)); now != before {
			t.Errorf("handlers were %s and are %s", before, now)
		}
	}
}

// Programs that are no runtime, or a bad one, are not added: the answer says what
// is wrong with which, what was in force stays, and pods notice nothing.
func TestBadProgramsAreNotAdded(t *testing.T) {
	n, undisturbed := watched(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct{ path, want string }{
		"missing":        {"/not/there", "there is no program /not/there"},
		"not executable": {file, "is not executable"},
		"a folder":       {t.TempDir(), "is no program but a"},
		"no runtime":     {"/bin/echo", "is no OCI runtime"},
		"empty":          {script(t, "empty", "exit 0"), "never ran"},
		"fails":          {script(t, "fails", "echo 'the moon is full' >&2; exit 3"), "the moon is full"},
		"hangs":          {script(t, "hangs", "sleep 1000 & wait"), "did not end in time"},
		"floods":         {script(t, "floods", "head -c 1000000000 /dev/zero >&2; exit 1"), "it printed more than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.CLI("handlers", "add", "bad", "path="+bad.path)
			for _, want := range []string{bad.want, "handlers.bad in ", "bad.toml", "nothing was changed"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
			undisturbed(t)
		})
	}
	if left, _ := filepath.Glob(filepath.Join(n.Root, "handlers.d", "*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// Mistakes in the files of the configuration are told with file, line and key,
// and what was in force stays.
func TestBadHandlerFilesAreNotUsed(t *testing.T) {
	n, undisturbed := watched(t)
	with, err := os.ReadFile(n.Config)
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath(node.Handlers[0])
	if err != nil {
		t.Fatal(err)
	}
	good := fmt.Sprintf("[handlers.good]\npath = %q\n", path)
	for _, bad := range []struct {
		name, toml string
		want       []string
	}{
		{"twice", good + good, []string{"config.toml:3", "good"}},
		{"no label", good + "[handlers.\"Not A Label\"]\n", []string{"config.toml:3", "Not A Label"}},
		{"another type", good + "args = \"--debug\"\n", []string{"config.toml:3", "handlers.good.args"}},
		{"unknown key", good + "pth = \"/x\"\n", []string{"config.toml:3", "handlers.good.pth", "did you mean"}},
		{"no program", good + "[handlers.bad]\npath = \"/not/there\"\n", []string{"handlers.bad in ", "config.toml:3", "there is no program /not/there"}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			before := len(n.DaemonLog())
			if err := os.WriteFile(n.Config, append([]byte(bad.toml), with...), 0o600); err != nil {
				t.Fatal(err)
			}
			node.Eventually(t, "the file is refused", func() bool {
				return strings.Contains(n.DaemonLog()[before:], "what was in force stays")
			})
			if err := os.WriteFile(n.Config, with, 0o600); err != nil {
				t.Fatal(err) // commands read it, too
			}
			for _, want := range bad.want {
				if log := n.DaemonLog()[before:]; !strings.Contains(log, want) {
					t.Errorf("no %q in: %s", want, log)
				}
			}
			undisturbed(t)
		})
	}
}
