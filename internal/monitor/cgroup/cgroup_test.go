package cgroup

import "testing"

const mounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:5 - cgroup cgroup rw,memory
36 31 0:33 /docker/abc /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`

func TestWhereAProcessIs(t *testing.T) {
	const cgroups = `5:memory:/pods/a:b
4:cpu,cpuacct:/docker/abc/pods/a
1:name=systemd:/user
0::/two
`
	want := map[string]string{
		"/sys/fs/cgroup/memory":  "/pods/a:b",
		"/sys/fs/cgroup/cpu":     "/pods/a",
		"/sys/fs/cgroup/systemd": "/user",
		"/sys/fs/cgroup/unified": "/two",
	}
	all := parseMounts([]byte(mounts))
	if len(all) != len(want) {
		t.Fatalf("%d hierarchies", len(all))
	}
	for _, h := range all {
		if got := h.of(cgroups); got != want[h.mountPoint] {
			t.Errorf("%s: %q, not %q", h.mountPoint, got, want[h.mountPoint])
		}
	}
	if got := all[1].of("4:cpu,cpuacct:/elsewhere\n"); got != "" {
		t.Errorf("a group outside the mount: %q", got)
	}
}

func TestCount(t *testing.T) {
	for text, want := range map[string]int{
		"low 0\noom 3\noom_kill 2\noom_group_kill 1\n":  2,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n": 0,
		"oom_kill_disable 1\nunder_oom 0\n":             0,
		"oom_kill nonsense\n":                           0,
	} {
		if got := count(text, "oom_kill"); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}
