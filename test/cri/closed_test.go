package cri

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// Who is not root lists, reads and writes nothing of what the daemon and the
// monitor keep, and connects to none of their sockets: neither at once, nor when
// user namespaces of pods have opened the way to some folders.
func TestOthersGetAtNothing(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	for _, h := range node.Handlers {
		n.RunPod(h).Start(node.Script("echo secret; sleep 1000"))
	}
	wantClosed(t, n)
	for _, h := range node.Handlers {
		if !n.Features(h).GetUserNamespaces() {
			continue
		}
		inPod, inContainer := mapped()
		cfg := node.Script("echo secret; sleep 1000")
		inContainer(cfg)
		n.RunPod(h, inPod).Start(cfg)
	}
	wantClosed(t, n)
	n.RemoveAll()
}

// wantClosed has nobody try everything that root finds.
func wantClosed(t *testing.T, n *node.Node) {
	t.Helper()
	var all []string
	for _, top := range []string{n.State, n.Root} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil // it was of a moment
			case d.IsDir() && (d.Name() == "rootfs" || d.Name() == "fs"):
				return fs.SkipDir // what is in containers and images is theirs
			}
			all = append(all, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 50 {
		t.Fatalf("there is next to nothing: %q", all)
	}
	// "test -r" asks the kernel, which for a socket's connect looks at -w.
	cmd := exec.Command("sh", "-c", `while read -r f; do [ -L "$f" ] && continue; if [ -r "$f" ] || [ -w "$f" ]; then echo "$f"; fi; done`)
	cmd.Stdin = strings.NewReader(strings.Join(all, "\n") + "\n")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil || len(out) > 0 {
		t.Errorf("nobody gets at: %s (%v)", out, err)
	}
}

// A process in a container has the descriptors that it was given and no others:
// one of a folder of the host would be a way out.
func TestProcessesHaveTheirOwnDescriptorsOnly(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		list := []string{"ls", "/proc/self/fd"}
		const want = "0 1 2 3" // the last is the folder that it reads
		s := n.RunPod(h)
		for _, tty := range []bool{false, true} {
			cfg := node.Script("")
			cfg.Command, cfg.Tty, cfg.Stdin = list, tty, true
			c := s.Start(cfg)
			c.Wait()
			if got := words(c.Log()); got != want {
				t.Errorf("container, terminal %t: %q, want %q", tty, got, want)
			}
		}
		c := s.Start(node.Script("sleep 1000"))
		if got := words(c.Exec(list...)); got != want {
			t.Errorf("command: %q, want %q", got, want)
		}
		var out node.Buffer
		e, err := node.SPDYExecutor(c.ExecURL(&runtimeapi.ExecRequest{Cmd: list, Tty: true, Stdout: true}))
		if err == nil {
			err = e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdout: &out, Tty: true})
		}
		if got := words(out.String()); err != nil || got != want {
			t.Errorf("command on a terminal: %q, want %q (%v)", got, want, err)
		}
		s.Remove()
	})
}

// words are what a text says, in lines or in columns.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
