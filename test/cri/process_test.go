package cri

import (
	"fmt"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

type containerConfig = runtimeapi.ContainerConfig

func TestCommandAndArguments(t *testing.T) {
	ref, err := node.PushImage("test/entry:1", ocispec.ImageConfig{
		Entrypoint: []string{"echo", "entry"}, Cmd: []string{"cmd"}, Env: []string{"PATH=/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		n.Pull(ref)
		for _, tt := range []struct {
			command, args []string
			want          string
		}{
			{nil, nil, "entry cmd"},
			{nil, []string{"a"}, "entry a"},
			{[]string{"echo", "c"}, nil, "c"},
			{[]string{"echo", "c"}, []string{"a"}, "c a"},
		} {
			got := n.Inside(h, "", func(c *containerConfig) {
				c.Image.Image, c.Command, c.Args = ref, tt.command, tt.args
			})
			must(t, got, tt.want)
		}
	})
}

func TestEnvironment(t *testing.T) {
	ref, err := node.PushImage("test/env:1", ocispec.ImageConfig{Env: []string{"PATH=/bin", "A=image", "B=image"}})
	if err != nil {
		t.Fatal(err)
	}
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		n.Pull(ref)
		got := n.Inside(h, "env", func(c *containerConfig) {
			c.Image.Image = ref
			c.Envs = []*runtimeapi.KeyValue{
				{Key: "B", Value: []byte("request")}, {Key: "C", Value: []byte("two\nlines = x")}, {Key: "EMPTY"},
			}
		})
		mustContain(t, got, "A=image", "B=request", "C=two", "lines = x", "EMPTY=", "PATH=/bin")
		if strings.Contains(got, "B=image") {
			t.Errorf("the image's value stays beside the request's: %q", got)
		}
	})
}

func TestWorkingDirectory(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		must(t, n.Inside(h, "pwd", func(c *containerConfig) { c.WorkingDir = "/made/for/me" }), "/made/for/me")
		must(t, n.Inside(h, "pwd", nil), "/")
	})
}

func TestUsers(t *testing.T) {
	ref, err := node.PushImage("test/users:1", ocispec.ImageConfig{User: "app:staff", Env: []string{"PATH=/bin"}}, images.Layer{Files: map[string]images.File{
		"etc/passwd": {Body: []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n")},
		"etc/group":  {Body: []byte("root:x:0:\nstaff:x:50:\nextra:x:60:app\nmore:x:61:app,other\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const who = `echo $(id -u) $(id -g) $(grep Groups /proc/self/status | cut -f2)`
	sc := func(c *containerConfig) *runtimeapi.LinuxContainerSecurityContext { return c.Linux.SecurityContext }
	id := func(v int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: v} }
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		n.Pull(ref)
		for _, tt := range []struct {
			name   string
			change func(*containerConfig)
			want   string
		}{
			{"of the image", func(*containerConfig) {}, "1000 50 50 60 61"},
			{"uid", func(c *containerConfig) { sc(c).RunAsUser = id(1000) }, "1000 1001 60 61 1001"},
			{"unknown uid", func(c *containerConfig) { sc(c).RunAsUser = id(7777) }, "7777 0 0"},
			{"uid and gid", func(c *containerConfig) { sc(c).RunAsUser, sc(c).RunAsGroup = id(1000), id(99) }, "1000 99 60 61 99"},
			{"name", func(c *containerConfig) { sc(c).RunAsUsername = "app" }, "1000 1001 60 61 1001"},
			{"supplemental", func(c *containerConfig) {
				sc(c).RunAsUser, sc(c).SupplementalGroups = id(1000), []int64{1234}
			}, "1000 1001 60 61 1001 1234"},
			{"strict", func(c *containerConfig) {
				sc(c).RunAsUser, sc(c).SupplementalGroups = id(1000), []int64{1234}
				sc(c).SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			}, "1000 1001 1001 1234"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				got := n.Inside(h, who, func(c *containerConfig) { c.Image.Image = ref; tt.change(c) })
				if sorted(got) != sorted(tt.want) {
					t.Errorf("got %q, want %q", strings.TrimSpace(got), tt.want)
				}
			})
		}
	})
}

// sorted brings the groups, which have no order, into one: uid and gid stay.
func sorted(s string) string {
	f := strings.Fields(s)
	if len(f) < 2 {
		return s
	}
	set := map[string]bool{}
	for _, g := range f[2:] {
		set[g] = true
	}
	return fmt.Sprint(f[:2], set)
}

func TestUserErrors(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		for _, tt := range []struct {
			change func(*runtimeapi.LinuxContainerSecurityContext)
			want   string
		}{
			{func(c *runtimeapi.LinuxContainerSecurityContext) { c.RunAsUsername = "nosuch" }, "nosuch"},
			{func(c *runtimeapi.LinuxContainerSecurityContext) { c.RunAsGroup = &runtimeapi.Int64Value{Value: 1} }, "run_as_group"},
		} {
			cfg := node.Script("true")
			tt.change(cfg.Linux.SecurityContext)
			if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("want an error with %q, got %v", tt.want, err)
			}
		}
	})
}

func TestThreeHundredArguments(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		got := n.Inside(h, "", func(c *containerConfig) {
			c.Command = []string{"sh", "-c", "echo $# $300", "sh"}
			for i := range 300 {
				c.Args = append(c.Args, fmt.Sprintf("odd 'arg' $%d \"\n\\", i+1))
			}
		})
		if !strings.HasPrefix(got, "300 ") {
			t.Errorf("got %q", got)
		}
	})
}

func TestHostname(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		must(t, n.Inside(h, "hostname; cat /etc/hostname; echo $HOSTNAME", nil, func(p *runtimeapi.PodSandboxConfig) {
			p.Hostname = "chosen"
		}), "chosen\nchosen\nchosen")
	})
}

func TestDNSAndHosts(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		got := n.Inside(h, "cat /etc/resolv.conf; echo --; cat /etc/hosts", nil, func(p *runtimeapi.PodSandboxConfig) {
			p.Hostname = "named"
			p.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.9.8.7"}, Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:5"}}
		})
		mustContain(t, got, "nameserver 10.9.8.7", "search a.example b.example", "options ndots:5")
		if !strings.Contains(got, "localhost") || !strings.Contains(got, "named") {
			t.Errorf("hosts: %q", got)
		}
	})
}

func TestTerminal(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		got := n.Inside(h, "tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; echo $TERM", func(c *containerConfig) {
			c.Tty, c.Stdin = true, true
		})
		got = strings.ReplaceAll(got, "\r", "")
		mustContain(t, got, "all", "xterm")
	})
}
