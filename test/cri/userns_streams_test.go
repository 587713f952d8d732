package cri

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// networks are the two kinds of networks that pods can have.
var networks = map[string][]node.Option{"built-in": nil, "CNI": {node.Conflist}}

// asUser runs a container in a pod with a user namespace as somebody who may do
// nothing.
func asUser(text string) *containerConfig {
	cfg := node.Script(text)
	_, inContainer := mapped()
	inContainer(cfg)
	cfg.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{Value: 1000}
	cfg.Linux.SecurityContext.RunAsGroup = &runtimeapi.Int64Value{Value: 1001}
	return cfg
}

// A pod with a user namespace is reached as any other, on a port that only root
// has elsewhere too, and reaches others.
func TestUserNamespaceNetworks(t *testing.T) {
	for name, options := range networks {
		t.Run(name, func(t *testing.T) {
			node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
				needUserNamespaces(t, n, h)
				port := freePort(t)
				inPod, _ := mapped()
				s := n.RunPod(h, inPod, func(p *runtimeapi.PodSandboxConfig) {
					p.Hostname = "mapped"
					p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: port, Protocol: runtimeapi.Protocol_TCP}}
				})
				c := s.Start(asUser("httpd -f -p 80 -h /etc"))
				ip := s.IPs()[0]
				for _, u := range []string{"http://" + ip + "/hostname", fmt.Sprintf("http://127.0.0.1:%d/hostname", port)} {
					node.Eventually(t, "a page from "+u, func() bool { return strings.TrimSpace(fetch(u)) == "mapped" })
				}
				must(t, n.Inside(h, "wget -qO- http://"+ip+"/hostname", nil), "mapped")
				must(t, insideMapped(n, h, "wget -qO- http://"+ip+"/hostname", nil), "mapped")
				if err := pings(c, firstID+1001); err != nil {
					t.Errorf("ping: %v", err)
				}
				for _, dialer := range forwarders {
					addr, stop := forwardTo(t, s, dialer, 80)
					node.Eventually(t, "a page by a forwarded port", func() bool { return strings.TrimSpace(fetch("http://"+addr+"/hostname")) == "mapped" })
					stop()
				}
				s.Remove()
				if fetch(fmt.Sprintf("http://127.0.0.1:%d/hostname", port)) != "" {
					t.Error("the host port still answers")
				}
			}, options...)
		})
	}
}

// pings opens the socket by which somebody who may do nothing pings, as a group
// of the node in the network namespace of a container.
func pings(c *node.Container, group int) error {
	path, err := networkOf(c.NS("net"))
	if err != nil {
		return err
	}
	runtime.LockOSThread() // not a thread that ends: daemons end with that which started them
	defer runtime.UnlockOSThread()
	back, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer back.Close()
	there, err := os.Open(path)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := socketAs(group)
	if err == nil {
		err = unix.Close(fd)
	}
	if failed := unix.Setns(int(back.Fd()), unix.CLONE_NEWNET); failed != nil {
		panic(failed) // the thread would go on there with other tests
	}
	return err
}

func socketAs(group int) (int, error) {
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, same, uintptr(group), same); errno != 0 {
		return -1, errno
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, same, uintptr(os.Getgid()), same); errno != 0 {
		panic(errno)
	}
	return fd, err
}

// networkOf finds a process in the network namespace of this name.
func networkOf(link string) (path string, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range all {
		if is, err := os.Readlink(path); err == nil && is == link {
			return path, nil
		}
	}
	return "", errors.Join(err, fmt.Errorf("nobody is in %s", link))
}

// A terminal belongs to the user of the process, who can open it again.
func TestUserNamespaceExecOnATerminal(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		inPod, _ := mapped()
		s := n.RunPod(h, inPod)
		c := s.Start(asUser("sleep 1000"))
		for name, dial := range node.Executors {
			e, err := dial(c.ExecURL(&runtimeapi.ExecRequest{
				Cmd:   []string{"sh", "-c", `id -u; stat -c "owner %u" "$(tty)"; read x; echo "got $x" >"$(tty)"; echo again >/dev/tty; exit 4`},
				Stdin: true, Stdout: true, Tty: true,
			}))
			if err != nil {
				t.Fatal(err)
			}
			typed, typing := io.Pipe()
			out := prompter{until: "owner 1000\r\n", then: sync.OnceFunc(func() {
				go func() { _, _ = io.WriteString(typing, "word\n") }()
			})}
			err = e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdin: typed, Stdout: &out, Tty: true})
			var code utilexec.CodeExitError
			if !errors.As(err, &code) || code.Code != 4 {
				t.Errorf("%s: %v", name, err)
			}
			for _, want := range []string{"1000\r\n", "owner 1000\r\n", "got word\r\n", "again\r\n"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: no %q in %q", name, want, out.String())
				}
			}
			_ = typed.Close()
		}
		s.Remove()
	})
}

// prompter does something once it was told something: a terminal puts the echo of
// what is typed earlier into the middle of a line.
type prompter struct {
	strings.Builder // a bytes.Buffer would be read into, past Write
	until           string
	then            func()
}

func (p *prompter) Write(b []byte) (int, error) {
	defer func() {
		if strings.Contains(p.String(), p.until) {
			p.then()
		}
	}()
	return p.Builder.Write(b)
}

func TestUserNamespaceAttach(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		inPod, _ := mapped()
		s := n.RunPod(h, inPod)
		for _, tty := range []bool{true, false} {
			cfg := asUser(`while read line; do echo "got $line"; [ -t 1 ] && echo "size $(stty size)"; done`)
			cfg.Metadata.Name, cfg.LogPath = fmt.Sprint("tty-", tty), fmt.Sprint("tty-", tty, ".log")
			cfg.Tty, cfg.Stdin = tty, true
			c := s.Start(cfg)
			c.Attach(tty, func(stdin io.Writer, out func() string, resize chan<- remotecommand.TerminalSize) {
				want := "got word"
				if tty {
					want = "size 31 71"
					resize <- remotecommand.TerminalSize{Height: 31, Width: 71}
				}
				node.Eventually(t, "the answer "+want, func() bool {
					_, _ = io.WriteString(stdin, "word\n")
					return strings.Contains(out(), want)
				})
			})
		}
		s.Remove()
	})
}
