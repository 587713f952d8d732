package selinux

import (
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// onHost is what New makes of a usual policy, which knows no type that begins
// with "no".
func onHost() *Labels {
	return &Labels{
		process: selinux.Context{"user": "system_u", "role": "system_r", "type": "container_t", "level": "s0"},
		file:    selinux.Context{"user": "system_u", "role": "object_r", "type": "container_file_t", "level": "s0"},
		check: func(label string) error {
			if strings.Contains(":"+label, ":no") {
				return unix.EINVAL
			}
			return nil
		},
	}
}

var able = pod.HandlerInfo{Features: pod.HandlerFeatures{SELinux: true}}

func pickThird(levels iter.Seq[string]) string {
	n := 0
	for l := range levels {
		if n++; n == 3 {
			return l
		}
	}
	return ""
}

func TestContainer(t *testing.T) {
	type options = pod.SELinuxOptions
	const own = "s0:c7,c9"
	const file = "system_u:object_r:container_file_t:"
	for name, tc := range map[string]struct {
		pod, container pod.Security
		want           pod.Labels
	}{
		"nothing asked": {want: pod.Labels{Process: "system_u:system_r:container_t:" + own, Mount: file + own}},
		"the pod's options": {
			pod:  pod.Security{SELinux: &options{Type: "mine_t"}},
			want: pod.Labels{Process: "system_u:system_r:mine_t:" + own, Mount: file + own},
		},
		"its own options before the pod's": {
			pod: pod.Security{SELinux: &options{Type: "mine_t"}}, container: pod.Security{SELinux: &options{Level: "s0:c1,c2"}},
			want: pod.Labels{Process: "system_u:system_r:container_t:s0:c1,c2", Mount: file + "s0:c1,c2"},
		},
		"all of them": {
			container: pod.Security{SELinux: &options{User: "u", Role: "r", Type: "t", Level: "s0:c1.c3"}},
			want:      pod.Labels{Process: "u:r:t:s0:c1.c3", Mount: "u:object_r:container_file_t:s0:c1.c3"},
		},
		"privileged": {
			container: pod.Security{Privileged: true, SELinux: &options{Type: "mine_t"}},
			want:      pod.Labels{Mount: file + own},
		},
		"the node's processes": {
			container: pod.Security{Namespaces: pod.Namespaces{PID: pod.NamespaceNode}},
			want:      pod.Labels{Mount: file + own},
		},
		"the node's memory": {
			pod:  pod.Security{Namespaces: pod.Namespaces{IPC: pod.NamespaceNode}},
			want: pod.Labels{Mount: file + own},
		},
		"the node's processes, with a type": {
			container: pod.Security{Namespaces: pod.Namespaces{PID: pod.NamespaceNode}, SELinux: &options{Type: "mine_t"}},
			want:      pod.Labels{Process: "system_u:system_r:mine_t:" + own, Mount: file + own},
		},
		"the node's network": {
			pod:  pod.Security{Namespaces: pod.Namespaces{Network: pod.NamespaceNode}},
			want: pod.Labels{Process: "system_u:system_r:container_t:" + own, Mount: file + own},
		},
	} {
		r := &pod.Record{ID: "p", Config: pod.Config{Security: tc.pod}, Labels: pod.Labels{Mount: file + own}}
		c := &pod.Container{Config: pod.ContainerConfig{Security: tc.container}}
		if got, err := onHost().Container(r, c, able); got != tc.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
		if got, err := onHost().Container(r, c, pod.HandlerInfo{}); got != (pod.Labels{}) || err != nil {
			t.Errorf("%s: a handler that cannot label gets %+v, %v", name, got, err)
		}
		if got, err := new(Labels).Container(r, c, able); got != (pod.Labels{}) || err != nil {
			t.Errorf("%s: a host without SELinux gives %+v, %v", name, got, err)
		}
	}
}

func TestPod(t *testing.T) {
	r := &pod.Record{ID: "p"}
	want := pickThird(Levels("p"))
	got, err := onHost().Pod(r, able, pickThird)
	if err != nil || got.Level() != want || !strings.HasSuffix(got.Process, ":"+want) {
		t.Errorf("%+v, %v; picked was %s", got, err, want)
	}
	r.Config.Security.SELinux = &pod.SELinuxOptions{Level: "s0:c1,c2"}
	none := func(iter.Seq[string]) string { t.Error("asked for a level though there is one"); return "" }
	if got, err = onHost().Pod(r, able, none); got.Level() != "s0:c1,c2" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = new(Labels).Pod(r, able, none); got != (pod.Labels{}) || err != nil {
		t.Errorf("a host without SELinux gives %+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	for _, o := range []pod.SELinuxOptions{
		{Type: "no_such_t"},
		{User: "no_such_u"},
		{Level: "no:c1"},
		{Type: `t",upperdir="/`},
		{Level: `s0",lowerdir=/etc,x="`},
		{User: "a b"},
		{Role: "r:t"},
		{Type: "t\x00"},
	} {
		r := &pod.Record{ID: "p", Config: pod.Config{Security: pod.Security{SELinux: &o}}}
		_, err := onHost().Pod(r, able, pickThird)
		if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "selinux_options") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestLevels(t *testing.T) {
	seen := map[string]bool{}
	for l := range Levels("p") {
		a, b, ok := strings.Cut(strings.TrimPrefix(l, "s0:c"), ",c")
		if !ok || a == b {
			t.Fatalf("level %s", l)
		}
		seen[l] = true
	}
	if want := categories * (categories - 1) / 2; len(seen) != want {
		t.Errorf("%d levels, want %d", len(seen), want)
	}
}

func TestLevelOfLabels(t *testing.T) {
	for label, want := range map[string]string{"": "", "u:r:t": "", "u:r:t:s0": "s0", "u:r:t:s0:c1,c2": "s0:c1,c2"} {
		if got := (pod.Labels{Mount: label}).Level(); got != want {
			t.Errorf("%q has the level %q, want %q", label, got, want)
		}
	}
}
