package spec

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/environ"
)

func TestCommand(t *testing.T) {
	type list = []string
	for name, tt := range map[string]struct{ entrypoint, cmd, command, args, want list }{
		"image alone":              {list{"e"}, list{"c"}, nil, nil, list{"e", "c"}},
		"command replaces both":    {list{"e"}, list{"c"}, list{"x"}, nil, list{"x"}},
		"args replace the cmd":     {list{"e"}, list{"c"}, nil, list{"y"}, list{"e", "y"}},
		"both":                     {list{"e"}, list{"c"}, list{"x"}, list{"y", "z"}, list{"x", "y", "z"}},
		"only a cmd":               {nil, list{"c", "d"}, nil, nil, list{"c", "d"}},
		"an entrypoint of nothing": {list{""}, list{"c"}, nil, nil, list{"c"}},
		"args for no entrypoint":   {nil, list{"c"}, nil, list{"y"}, list{"y"}},
		"empty words stay":         {list{"e", ""}, nil, nil, nil, list{"e", ""}},
	} {
		tc := plain(t)
		tc.req.Image.Entrypoint, tc.req.Image.Cmd = tt.entrypoint, tt.cmd
		tc.c.Process.Command, tc.c.Process.Args = tt.command, tt.args
		same(t, name, tc.spec(t).spec.Process.Args, tt.want)
	}
	tc := plain(t)
	tc.c.Process.Command = nil
	tc.refused(t, errdefs.ErrInvalidArgument, "command", "example/app")
	tc.c.Process.Command = []string{"a\x00b"}
	tc.refused(t, errdefs.ErrInvalidArgument, "zero byte")
	tc.c.Process.Command = []string{""}
	tc.refused(t, errdefs.ErrInvalidArgument, "command[0]")
	tc.c.Process.Command = slices.Repeat([]string{"word"}, 300)
	if n := len(tc.spec(t).spec.Process.Args); n != 300 {
		t.Errorf("%d words of 300", n)
	}
}

func TestEnvironment(t *testing.T) {
	tc := plain(t)
	same(t, "defaults", tc.spec(t).spec.Process.Env, []string{"PATH=" + defaultPath, "HOSTNAME=host-1"})
	tc.c.Process.TTY = true
	tc.req.Image.Env = []string{"A=image", "PATH=/image", "B=1", "nothing", "=x", "Z=a\x00b", "E="}
	tc.c.Process.Env = []pod.EnvVar{{Name: "A", Value: "request=1"}, {Name: "C", Value: ""}, {Name: "odd name\n", Value: "x\ny"}}
	w := tc.spec(t)
	same(t, "merged", w.spec.Process.Env, []string{"PATH=/image", "HOSTNAME=host-1", "TERM=xterm", "A=request=1", "B=1", "E=", "C=", "odd name\n=x\ny"})
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], `3 image variables, such as "nothing"`) {
		t.Errorf("warnings %q", w.warnings)
	}
	for _, e := range []pod.EnvVar{{Name: ""}, {Name: "A=B"}, {Name: "A\x00"}} {
		tc.c.Process.Env = []pod.EnvVar{{Name: "OK"}, e}
		tc.refused(t, errdefs.ErrInvalidArgument, "envs[1].key")
	}
	tc.c.Process.Env = []pod.EnvVar{{Name: "A", Value: "\x00"}}
	tc.refused(t, errdefs.ErrInvalidArgument, "envs[0].value")

	tc = plain(t)
	tc.record.Config.Security.Namespaces.Network = pod.NamespaceNode
	node, err := os.Hostname()
	must(t, err)
	if env := tc.spec(t).spec.Process.Env; env[1] != "HOSTNAME="+node {
		t.Errorf("on the node's network: %v", env)
	}
}

func FuzzEnvironment(f *testing.F) {
	f.Add("A=1", "A", "2")
	f.Add("=", "=", "\x00")
	f.Add("PATH=", "PATH", "")
	f.Fuzz(func(t *testing.T, image, name, value string) {
		e := environ.New("PATH=x")
		b := &build{Builder: &Builder{}}
		b.req.Record, b.req.Container = &pod.Record{Config: pod.Config{Hostname: "h"}}, &pod.Container{}
		b = b.newBuild(b.req)
		b.req.Image.Env = []string{image}
		b.req.Container.Config.Process.Env = []pod.EnvVar{{Name: name, Value: value}}
		if err := b.environment(t.Context()); err != nil {
			return
		}
		seen := map[string]bool{}
		for _, v := range b.spec.Process.Env {
			n, _, ok := strings.Cut(v, "=")
			if !ok || n == "" || strings.ContainsRune(v, 0) || seen[n] {
				t.Errorf("%q in %q", v, b.spec.Process.Env)
			}
			seen[n] = true
		}
		e.Set(name, value)
	})
}

func TestWorkingDir(t *testing.T) {
	for name, tt := range map[string]struct {
		image, request, want, made string
	}{
		"neither":          {"", "", "/", ""},
		"image's":          {"/srv/app", "", "/srv/app", "srv/app"},
		"request's":        {"/srv/app", "/data", "/data", "data"},
		"relative image's": {"app", "", "/app", "app"},
		"dots":             {"", "/a/../../b", "/b", "b"},
		"through a link":   {"", "/link/x", "/link/x", "etc/x"},
		"in a mount":       {"", "/mnt/deep", "/mnt/deep", ""},
		"in /proc":         {"", "/proc/1", "/proc/1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			must(t, os.Symlink("/etc", filepath.Join(tc.req.Rootfs, "link")))
			tc.req.Image.WorkingDir, tc.c.Process.WorkingDir = tt.image, tt.request
			tc.c.Mounts = []pod.Mount{{ContainerPath: "/mnt", HostPath: t.TempDir()}}
			if got := tc.spec(t).spec.Process.Cwd; got != tt.want {
				t.Errorf("got %s", got)
			}
			if tt.made != "" {
				if info, err := os.Lstat(filepath.Join(tc.req.Rootfs, tt.made)); err != nil || !info.IsDir() {
					t.Errorf("%s was not made: %v", tt.made, err)
				}
			} else if _, err := os.Lstat(filepath.Join(tc.req.Rootfs, tt.want)); err == nil && tt.want != "/" {
				t.Errorf("%s was made", tt.want)
			}
		})
	}
	for name, tt := range map[string]string{
		"relative": "data", "open files": "/proc/self/fd/8", "root": "/proc/1/root", "of a thread": "/proc/self/task/1/fd", "zero": "/a\x00b",
		"a file": "/etc/passwd",
	} {
		tc := plain(t)
		tc.c.Process.WorkingDir = tt
		t.Run(name, func(t *testing.T) { tc.refused(t, errdefs.ErrInvalidArgument, "working_dir") })
	}
	// A link out of the image makes nothing outside of it.
	tc := plain(t)
	outside := t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(tc.req.Rootfs, "out")))
	tc.c.Process.WorkingDir = "/out/x"
	if _, err := tc.build(t); err == nil {
		t.Error("a folder behind a link to nowhere was made")
	}
	if list, _ := os.ReadDir(outside); len(list) > 0 {
		t.Errorf("made %v outside", list)
	}
}

func TestSignals(t *testing.T) {
	tc := plain(t)
	tc.req.Image.StopSignal = "SIGQUIT"
	if got := tc.spec(t).stopSignal; got != "SIGQUIT" {
		t.Errorf("image's: %s", got)
	}
	tc.c.StopSignal = "SIGUSR2"
	if got := tc.spec(t).stopSignal; got != "SIGUSR2" {
		t.Errorf("request's: %s", got)
	}
	tc.c.StopSignal = "SIGNOPE"
	tc.refused(t, errdefs.ErrInvalidArgument, "stop_signal")
	tc.c.StopSignal, tc.req.Image.StopSignal = "", "SIGNOPE"
	if w := tc.spec(t); w.stopSignal != "SIGTERM" || len(w.warnings) != 1 {
		t.Errorf("a wrong one of the image: %s, %v", w.stopSignal, w.warnings)
	}
}

func TestIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		image    string
		id       pod.Identity
		uid, gid uint32
		groups   []uint32
	}{
		"root":                  {"", pod.Identity{}, 0, 0, []uint32{0, 3001}},
		"image's name":          {"web", pod.Identity{}, 1000, 2000, []uint32{2000, 3000, 3001}},
		"image's number":        {"1000", pod.Identity{}, 1000, 2000, []uint32{2000, 3000, 3001}},
		"a name like a number":  {"1234", pod.Identity{}, 77, 78, []uint32{78}},
		"image's unknown id":    {"4321", pod.Identity{}, 4321, 0, []uint32{0}},
		"image's group":         {"web:extra", pod.Identity{}, 1000, 3000, []uint32{3000, 3001}},
		"image's group number":  {"9:8", pod.Identity{}, 9, 8, []uint32{8}},
		"image's group alone":   {":num", pod.Identity{}, 0, 55, []uint32{55, 3001}},
		"image's user, colon":   {"web:", pod.Identity{}, 1000, 2000, []uint32{2000, 3000, 3001}},
		"request's uid":         {"web:extra", pod.Identity{UID: ptrTo(5)}, 5, 0, []uint32{0}},
		"request's known uid":   {"", pod.Identity{UID: ptrTo(1000)}, 1000, 2000, []uint32{2000, 3000, 3001}},
		"request's uid and gid": {"", pod.Identity{UID: ptrTo(1000), GID: ptrTo(9)}, 1000, 9, []uint32{9, 3000, 3001}},
		"request's name":        {"root", pod.Identity{Username: "web"}, 1000, 2000, []uint32{2000, 3000, 3001}},
		"name and gid":          {"", pod.Identity{Username: "web", GID: ptrTo(9)}, 1000, 9, []uint32{9, 3000, 3001}},
		"supplemental, merged":  {"", pod.Identity{UID: ptrTo(1000), SupplementalGroups: []int64{7, 3000, 8}}, 1000, 2000, []uint32{7, 8, 2000, 3000, 3001}},
		"supplemental, strict":  {"", pod.Identity{UID: ptrTo(1000), SupplementalGroups: []int64{7, 8}, GroupsPolicy: pod.GroupsStrict}, 1000, 2000, []uint32{7, 8, 2000}},
		"strict root":           {"", pod.Identity{GroupsPolicy: pod.GroupsStrict}, 0, 0, []uint32{0}},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.req.Image.User, tc.c.Security.Identity = tt.image, tt.id
			w := tc.spec(t)
			u := w.spec.Process.User
			if u.UID != tt.uid || u.GID != tt.gid || w.user.UID != int64(tt.uid) || w.user.GID != int64(tt.gid) {
				t.Errorf("got %d:%d, told %d:%d", u.UID, u.GID, w.user.UID, w.user.GID)
			}
			same(t, "groups", u.AdditionalGids, tt.groups)
			if len(w.user.SupplementalGroups) != len(tt.groups) {
				t.Errorf("told groups %v", w.user.SupplementalGroups)
			}
		})
	}
}

func TestIdentityRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		image string
		id    pod.Identity
		words string
	}{
		"both":             {"", pod.Identity{UID: ptrTo(1), Username: "web"}, "run_as_username"},
		"gid alone":        {"", pod.Identity{GID: ptrTo(1)}, "linux.security_context.run_as_group needs run_as_user or run_as_username"},
		"negative uid":     {"", pod.Identity{UID: ptrTo(-1)}, "run_as_user"},
		"the none id":      {"", pod.Identity{UID: ptrTo(1<<32 - 1)}, "run_as_user"},
		"wide uid":         {"", pod.Identity{UID: ptrTo(1 << 32)}, "run_as_user"},
		"wide gid":         {"", pod.Identity{UID: ptrTo(1), GID: ptrTo(1 << 40)}, "run_as_group"},
		"group":            {"", pod.Identity{SupplementalGroups: []int64{1, -5}}, "supplemental_groups[1]"},
		"policy":           {"", pod.Identity{GroupsPolicy: "Lax"}, "supplemental_groups_policy"},
		"unknown name":     {"", pod.Identity{Username: "nobody"}, `"nobody" is not in the image's /etc/passwd`},
		"number as a name": {"", pod.Identity{Username: "1000"}, "run_as_username"},
		"image's name":     {"ghost", pod.Identity{}, "image user"},
		"image's group":    {"web:ghosts", pod.Identity{}, "/etc/group"},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.req.Image.User, tc.c.Security.Identity = tt.image, tt.id
			tc.refused(t, errdefs.ErrInvalidArgument, tt.words)
		})
	}
}

func TestHostileUserFiles(t *testing.T) {
	tc := plain(t)
	passwd := filepath.Join(tc.req.Rootfs, "etc/passwd")
	must(t, os.WriteFile(passwd, []byte(strings.Repeat("x", userFileLimit+1)), 0o644))
	tc.refused(t, errdefs.ErrInvalidArgument, "/etc/passwd")
	// Who needs no such file is not kept from running by one.
	tc.c.Security.Identity = pod.Identity{UID: ptrTo(5), GID: ptrTo(6), GroupsPolicy: pod.GroupsStrict}
	tc.spec(t)

	// But the runtime needs it, and would be at it for minutes, or for ever.
	must(t, os.Truncate(passwd, 4<<30))
	tc.refused(t, errdefs.ErrInvalidArgument, "/etc/passwd", "larger than")
	must(t, os.Remove(passwd))
	must(t, unix.Mkfifo(passwd, 0o644))
	tc.refused(t, errdefs.ErrInvalidArgument, "/etc/passwd", "not a regular file")

	secret := filepath.Join(t.TempDir(), "passwd")
	must(t, os.WriteFile(secret, []byte("web:x:1:1::\n"), 0o644))
	must(t, os.Remove(passwd))
	must(t, os.Symlink(secret, passwd))
	tc.c.Security.Identity = pod.Identity{Username: "web"}
	tc.refused(t, errdefs.ErrInvalidArgument, "not in the image")
	must(t, os.RemoveAll(filepath.Join(tc.req.Rootfs, "etc")))
	tc.c.Security.Identity = pod.Identity{}
	if u := tc.spec(t).spec.Process.User; u.UID != 0 || u.GID != 0 {
		t.Errorf("without user files: %+v", u)
	}
}

// What is mounted over is a folder: a link there has led runtimes out of the
// container.
func TestKernelMountsNeedFolders(t *testing.T) {
	for _, name := range []string{"proc", "sys", "dev"} {
		tc := plain(t)
		at := filepath.Join(tc.req.Rootfs, name)
		must(t, os.Symlink(t.TempDir(), at))
		tc.refused(t, errdefs.ErrInvalidArgument, "the image", "/"+name)
		must(t, os.Remove(at))
		must(t, os.WriteFile(at, nil, 0o644))
		tc.refused(t, errdefs.ErrInvalidArgument, "the image", "/"+name)
		must(t, os.Remove(at))
		must(t, os.Mkdir(at, 0o755))
		tc.spec(t)
	}
}

func TestArgumentsHaveToFit(t *testing.T) {
	long := strings.Repeat("x", 32*os.Getpagesize())
	for name, change := range map[string]func(*testCase){
		"program":      func(tc *testCase) { tc.c.Process.Command = []string{"/" + long} },
		"word":         func(tc *testCase) { tc.c.Process.Args = []string{long} },
		"variable":     func(tc *testCase) { tc.c.Process.Env = []pod.EnvVar{{Name: "A", Value: long}} },
		"image's":      func(tc *testCase) { tc.req.Image.Env = []string{"A=" + long} },
		"all together": func(tc *testCase) { tc.c.Process.Args = slices.Repeat([]string{long[:1000]}, 7000) },
		"very many":    func(tc *testCase) { tc.c.Process.Args = slices.Repeat([]string{"x"}, 700_000) },
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			change(tc)
			tc.refused(t, errdefs.ErrInvalidArgument, "too long")
		})
	}
	tc := plain(t)
	tc.c.Process.Args = []string{long[1:]}
	tc.spec(t)
}
