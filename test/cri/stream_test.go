package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func TestExecSync(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		r, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"sh", "-c", "echo out; echo err >&2; exit 5"}})
		if err != nil || string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.ExitCode != 5 {
			t.Errorf("%+v %v", r, err)
		}
		_, err = n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"/no/such/program"}})
		if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
			t.Errorf("missing program: %v", err)
		}
		_, err = n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Timeout: 1, Cmd: []string{"sh", "-c", "(setsid sleep 501 &); sleep 500 & sleep 600"}})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a timeout: %v", err)
		}
		node.Eventually(t, "what the exec started is gone", func() bool {
			return sleeping(c, "500", "501", "600") == 0
		})
	})
}

// sleeping says how many of these run in the container.
func sleeping(c *node.Container, seconds ...string) (count int) {
	c.Sandbox.Node.T.Helper()
	for line := range strings.Lines(c.Exec("ps")) {
		for _, s := range seconds {
			if strings.HasSuffix(line, " sleep "+s+"\n") {
				count++
			}
		}
	}
	return count
}

func TestExecStreams(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		for name, dial := range node.Executors {
			t.Run(name, func(t *testing.T) {
				big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
				read := "cat"
				if strings.Contains(name, "v4") { // which cannot say that its input has ended
					read = fmt.Sprint("head -c ", len(big))
				}
				e, err := dial(c.ExecURL(&runtimeapi.ExecRequest{
					Cmd: []string{"sh", "-c", read + "; echo err >&2; exit 9"}, Stdin: true, Stdout: true, Stderr: true,
				}))
				if err != nil {
					t.Fatal(err)
				}
				var out, errOut bytes.Buffer
				err = e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdin: strings.NewReader(big), Stdout: &out, Stderr: &errOut})
				var code utilexec.CodeExitError
				if !errors.As(err, &code) || code.Code != 9 {
					t.Errorf("exit code: %v", err)
				}
				if out.String() != big || errOut.String() != "err\n" {
					t.Errorf("%d bytes of output, want %d; stderr %q", out.Len(), len(big), errOut.String())
				}
			})
		}
	})
}

func TestExecTerminalAndResize(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		for name, dial := range node.Executors {
			e, err := dial(c.ExecURL(&runtimeapi.ExecRequest{
				Cmd: []string{"sh", "-c", "until [ \"$(stty size)\" = '33 77' ]; do sleep 0.05; done; echo resized; exit 4"}, Tty: true, Stdin: true, Stdout: true,
			}))
			if err != nil {
				t.Fatal(err)
			}
			queue := make(node.Sizes, 1)
			queue <- remotecommand.TerminalSize{Width: 77, Height: 33}
			stdin, closeStdin := io.Pipe()
			var out bytes.Buffer
			err = e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Tty: true, TerminalSizeQueue: queue})
			var code utilexec.CodeExitError
			if !errors.As(err, &code) || code.Code != 4 || !strings.Contains(out.String(), "resized") {
				t.Errorf("%s: %q %v", name, out.String(), err)
			}
			close(queue)
			_ = closeStdin.Close()
		}
	})
}

// What a client had executed goes with the client: children, and what has left
// both its parent and its session. What a command left behind when it ended stays.
func TestExecEndsWithItsClient(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		c.Exec("sh", "-c", "setsid sleep 900 >/dev/null 2>&1 &")
		for name, dial := range node.Executors {
			for _, tty := range []bool{false, true} {
				e, err := dial(c.ExecURL(&runtimeapi.ExecRequest{
					Cmd: []string{"sh", "-c", "(setsid sleep 701 &); sleep 700 & sleep 800"}, Stdin: tty, Stdout: true, Tty: tty,
				}))
				if err != nil {
					t.Fatal(err)
				}
				ctx, leave := context.WithCancel(n.Ctx())
				o := remotecommand.StreamOptions{Stdout: io.Discard, Tty: tty}
				typed, typing := io.Pipe()
				if tty {
					o.Stdin = typed
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = e.StreamWithContext(ctx, o)
				}()
				node.Eventually(t, "the exec runs", func() bool { return sleeping(c, "700", "701", "800") == 3 })
				leave()
				_ = typing.Close()
				<-done
				node.Eventually(t, fmt.Sprintf("by %s, terminal %t, the exec is gone with its client", name, tty), func() bool { return sleeping(c, "700", "701", "800") == 0 })
			}
		}
		if sleeping(c, "900") != 1 {
			t.Error("what a command left behind that had ended is gone")
		}
	})
}

func TestStreamURLsWorkOnce(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	c := n.RunPod("").Start(node.Script("sleep 1000"))
	raw := c.ExecURL(&runtimeapi.ExecRequest{Cmd: []string{"true"}, Stdout: true})
	for i := range 2 {
		e, err := node.SPDYExecutor(raw)
		if err != nil {
			t.Fatal(err)
		}
		err = e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdout: io.Discard})
		if (err == nil) != (i == 0) {
			t.Errorf("use %d: %v", i+1, err)
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		t.Errorf("the streaming server is not on loopback: %s", raw)
	}
}

func TestAttach(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("while read line; do echo got $line; done; echo bye")
		cfg.Stdin, cfg.StdinOnce = true, true
		c := s.Start(cfg)
		r, err := n.Runtime.Attach(n.Ctx(), &runtimeapi.AttachRequest{ContainerId: c.ID, Stdin: true, Stdout: true, Stderr: true})
		if err != nil {
			t.Fatal(err)
		}
		e, err := node.SPDYExecutor(r.Url)
		if err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		err = e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdin: strings.NewReader("one\ntwo\n"), Stdout: &out, Stderr: &errOut})
		if err != nil {
			t.Error(err)
		}
		if st := c.Wait(); st.ExitCode != 0 {
			t.Errorf("%+v", st)
		}
		must(t, c.Log(), "got one\ngot two\nbye")
		if got := out.String(); !strings.Contains(got, "got one") || !strings.Contains(got, "got two") {
			t.Errorf("attached: %q", got)
		}
	})
}

func TestPortForward(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("mkdir /www && echo page > /www/index.html && httpd -f -p 127.0.0.1:8080 -h /www"))
		// The first connection that nobody answers ends the client's session.
		c.Exec("sh", "-c", "until wget -qO- http://127.0.0.1:8080/; do sleep 0.1; done")
		for name, dialer := range forwarders {
			addr, stop := forwardTo(t, s, dialer, 8080)
			var page string
			node.Eventually(t, "a page by "+name, func() bool {
				page = fetch("http://" + addr + "/")
				return page != ""
			})
			must(t, page, "page")
			stop()
		}
	})
}

// fetch returns the body, or nothing.
func fetch(u string) string {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(u)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

func TestReopenLog(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script(node.Numbers))
		node.Grown(t, []*node.Container{c})
		var old []string
		for i := range 3 {
			moved := fmt.Sprintf("%s.%d", c.LogPath(), i)
			if err := os.Rename(c.LogPath(), moved); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Runtime.ReopenContainerLog(n.Ctx(), &runtimeapi.ReopenContainerLogRequest{ContainerId: c.ID}); err != nil {
				t.Fatal(err)
			}
			old = append(old, moved)
			node.Grown(t, []*node.Container{c})
		}
		c.StopNumbers()
		c.Wait()
		last := c.LogPath()
		var all []byte
		for _, p := range append(old, last) {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		if err := os.WriteFile(last, all, 0o640); err != nil {
			t.Fatal(err)
		}
		node.CheckNumbers(t, c.Log())
		s.Remove()
	})
}

func TestLogFormat(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("echo out; sleep 0.3; echo err >&2; sleep 0.3; head -c 40000 /dev/zero | tr '\\0' x; echo; printf tail"))
		c.Wait()
		raw, err := os.ReadFile(c.LogPath())
		if err != nil {
			t.Fatal(err)
		}
		var partial, longest int
		for line := range strings.Lines(string(raw)) {
			f := strings.SplitN(line, " ", 4)
			if len(f) != 4 || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%q", line)
			}
			if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil || !strings.Contains(f[0], ".") {
				t.Errorf("stamp %q: %v", f[0], err)
			}
			if f[1] != "stdout" && f[1] != "stderr" || f[2] != "P" && f[2] != "F" {
				t.Errorf("%q %q", f[1], f[2])
			}
			if f[2] == "P" {
				partial++
			}
			longest = max(longest, len(f[3]))
		}
		if partial < 2 || longest > 16<<10+1 {
			t.Errorf("%d partial lines, the longest %d bytes", partial, longest)
		}
		got := c.Log()
		if !strings.HasPrefix(got, "out\nerr\n") || strings.Count(got, "x") != 40000 || !strings.Contains(got, "tail") {
			t.Errorf("%d bytes: %.40q ... %q", len(got), got, got[max(0, len(got)-20):])
		}
		if !strings.Contains(string(raw), " stderr F err\n") {
			t.Error("stderr is not marked")
		}
	})
}

func TestDaemonEndsByItselfWithoutPods(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("")
	s.Start(node.Script("true")).Wait()
	s.Remove()
	n.Kill(syscall.SIGTERM)
	n.WantNothingLeft(t)
	n.Start()
}
