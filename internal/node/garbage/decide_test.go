package garbage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// container reads "pod/name/seconds[/attempt] state": x exited, c created, r runs, u unknown.
func container(t *testing.T, text string) *runtimeapi.Container {
	t.Helper()
	id, state, _ := strings.Cut(text, " ")
	parts := strings.Split(id, "/")
	var seconds int64
	if _, err := fmt.Sscan(parts[2], &seconds); err != nil {
		t.Fatal(text, err)
	}
	var attempt uint32
	if len(parts) > 3 {
		if _, err := fmt.Sscan(parts[3], &attempt); err != nil {
			t.Fatal(text, err)
		}
	}
	return &runtimeapi.Container{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: parts[1], Attempt: attempt}, PodSandboxId: "box of " + parts[0], CreatedAt: epoch.Add(time.Duration(seconds) * time.Second).UnixNano(),
		Labels: map[string]string{podspec.LabelPodUID: parts[0], podspec.LabelContainerName: parts[1]},
		State: map[string]runtimeapi.ContainerState{
			"x": runtimeapi.ContainerState_CONTAINER_EXITED, "c": runtimeapi.ContainerState_CONTAINER_CREATED,
			"r": runtimeapi.ContainerState_CONTAINER_RUNNING, "u": runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		}[state],
	}
}

func TestDead(t *testing.T) {
	const now = 1000
	keepAll := ContainerPolicy{PerPod: -1, OfAllPods: -1}
	tests := []struct {
		name   string
		policy ContainerPolicy
		list   []string
		want   string
	}{
		{"the last attempt stays", DefaultContainerPolicy, []string{"a/m/1 x", "a/m/3 x", "a/m/2 x"}, "a/m/1 a/m/2"},
		{"of each container", DefaultContainerPolicy, []string{"a/m/1 x", "a/n/2 x", "b/m/3 x"}, ""},
		{"beside one that runs", DefaultContainerPolicy, []string{"a/m/1 x", "a/m/2 x", "a/m/3 r"}, "a/m/1"},
		{"none is kept", ContainerPolicy{OfAllPods: -1}, []string{"a/m/1 x", "a/m/2 x", "a/m/3 r"}, "a/m/1 a/m/2"},
		{"all are kept", keepAll, []string{"a/m/1 x", "a/m/2 x"}, ""},
		{"of a pod that is gone", keepAll, []string{"gone/m/1 x", "gone/m/2 r", "gone/m/3 u", "a/m/1 x"}, "gone/m/1"},
		{"too young", ContainerPolicy{MinAge: time.Minute, OfAllPods: -1}, []string{"a/m/940 x", "a/m/941 x", "gone/m/941 x"}, "a/m/940"},
		{"what nobody could observe", ContainerPolicy{OfAllPods: -1}, []string{"a/m/1 u", "a/m/2 r"}, ""},
		{"created, and about to start", ContainerPolicy{OfAllPods: -1}, []string{"a/m/1 c", "gone/m/1 c"}, ""},
		{"created, and given up", DefaultContainerPolicy, []string{"a/m/1 c", "a/m/2 x", "a/m/3 r"}, "a/m/1"},
		{"without a pod", ContainerPolicy{OfAllPods: -1}, []string{"/m/1 x"}, ""},
		{"too many: each gives", ContainerPolicy{PerPod: -1, OfAllPods: 2}, []string{"a/m/1 x", "a/m/2 x", "b/m/3 x", "b/m/4 x"}, "a/m/1 b/m/3"},
		{"too many: the oldest go", ContainerPolicy{PerPod: 1, OfAllPods: 2}, []string{"a/m/3 x", "b/m/1 x", "c/m/2 x", "d/m/4 x"}, "b/m/1 c/m/2"},
		{"too many: both", ContainerPolicy{PerPod: -1, OfAllPods: 1}, []string{"a/m/1 x", "a/m/2 x", "b/m/3 x"}, "a/m/1 a/m/2"},
		{"as many as may be", ContainerPolicy{PerPod: -1, OfAllPods: 2}, []string{"a/m/1 x", "a/m/2 x"}, ""},
		{"the clock was set back", DefaultContainerPolicy, []string{"a/m/900/0 x", "a/m/500/1 x", "gone/m/900/0 x", "gone/m/500/1 c"}, "gone/m/900/0 a/m/900/0"},
		{"and an attempt is about to start", DefaultContainerPolicy, []string{"a/m/900/0 x", "a/m/500/1 c"}, ""},
		{"or was given up", DefaultContainerPolicy, []string{"a/m/900/0 c", "a/m/500/1 x", "a/m/400/2 r"}, "a/m/900/0"},
		{"none may be", ContainerPolicy{PerPod: -1}, []string{"a/m/1 x", "b/m/2 x"}, "a/m/1 b/m/2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var list []*runtimeapi.Container
			for _, text := range tt.list {
				list = append(list, container(t, text))
			}
			var got []string
			for _, c := range Dead(list, tt.policy, epoch.Add(now*time.Second), func(uid string) bool { return uid != "gone" }) {
				got = append(got, c.Id)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %s", got, tt.want)
			}
		})
	}
}

// sandbox reads "pod/seconds[attempt]", with "!" behind it if it is ready.
func sandbox(text string) *runtimeapi.PodSandbox {
	id, ready := strings.CutSuffix(text, "!")
	pod, seconds, _ := strings.Cut(id, "/")
	s := &runtimeapi.PodSandbox{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: pod}, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		CreatedAt: int64(seconds[0]),
	}
	if len(seconds) > 1 {
		s.Metadata.Attempt = uint32(seconds[1] - '0')
	}
	if ready {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return s
}

func TestDeadSandboxes(t *testing.T) {
	for _, tt := range []struct{ list, full, want string }{
		{"a/1 a/2 a/3", "", "a/1 a/2"},
		{"a/3 a/2 a/1", "", "a/2 a/1"},
		{"a/1 a/2!", "", "a/1"},
		{"a/1! a/2", "", ""},
		{"a/1 a/2", "a/1", ""},
		{"gone/1 gone/2", "", "gone/1 gone/2"},
		{"gone/1 gone/2!", "", "gone/1"},
		{"gone/1", "gone/1", ""},
		{"a/1 b/1", "", ""},
		{"/1", "", ""},
		{"a/90 a/51", "", "a/90"}, // the clock was set back
	} {
		var list []*runtimeapi.PodSandbox
		for _, text := range strings.Fields(tt.list) {
			list = append(list, sandbox(text))
		}
		var got []string
		for _, s := range DeadSandboxes(list, []*runtimeapi.Container{{PodSandboxId: tt.full}}, func(uid string) bool { return uid != "gone" }) {
			got = append(got, s.Id)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s, with containers in %q: got %q, want %s", tt.list, tt.full, got, tt.want)
		}
	}
}

func at(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }

func ids(list []Image) string {
	var out []string
	for _, i := range list {
		out = append(out, i.ID)
	}
	return strings.Join(out, " ")
}

func TestImages(t *testing.T) {
	list := []Image{
		{ID: "lately", Seen: at(0), Used: at(90)},
		{ID: "in-use", Seen: at(0), Used: at(100), InUse: true},
		{ID: "pinned", Seen: at(0), Pinned: true},
		{ID: "long-ago", Seen: at(0), Used: at(10)},
		{ID: "never-2", Seen: at(5)},
		{ID: "never-1", Seen: at(4)},
		{ID: "new", Seen: at(99)},
	}
	p := ImagePolicy{HighPercent: 85, LowPercent: 80, MinAge: 2 * time.Minute}
	if got := ids(Removable(list, p, at(100))); got != "never-1 never-2 long-ago lately" {
		t.Error(got)
	}
	if got := Expired(list, p, at(100)); got != nil {
		t.Errorf("without a maximum age: %s", ids(got))
	}
	for age, want := range map[int]string{95: "never-1", 94: "never-1 never-2", 90: "never-1 never-2", 89: "never-1 never-2 long-ago", 5: "never-1 never-2 long-ago lately"} {
		p.MaxAge = time.Duration(age)*time.Minute + time.Second
		if want == "never-1 never-2" && age == 90 {
			p.MaxAge = 90 * time.Minute // as old as that, and not older
		}
		if got := ids(Expired(list, p, at(100))); got != want {
			t.Errorf("%s: %s, want %s", p.MaxAge, got, want)
		}
	}
	for free, want := range map[uint64]int{0: 0, 1: 1, 10: 1, 11: 2, 30: 3, 1000: 3} {
		if got := Enough([]Image{{Size: 10}, {Size: 10}, {Size: 10}}, free); got != want {
			t.Errorf("%d bytes: %d images, want %d", free, got, want)
		}
	}
}

func TestToFree(t *testing.T) {
	p := ImagePolicy{HighPercent: 85, LowPercent: 80}
	for _, tt := range []struct {
		capacity, available, want uint64
	}{{1000, 1000, 0}, {1000, 160, 0}, {1000, 151, 49}, {1000, 150, 50}, {1000, 0, 200}, {1000, 2000, 0}, {0, 0, 0}, {1 << 60, 0, (1 << 60) / 100 * 20}} {
		if got := ToFree(Disk{tt.capacity, tt.available}, p); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
	if got := ToFree(Disk{1000, 0}, ImagePolicy{HighPercent: 100, LowPercent: 80}); got != 0 {
		t.Errorf("with 100%%: %d", got)
	}
}

func TestCheck(t *testing.T) {
	for p, want := range map[ImagePolicy]string{
		DefaultImagePolicy:                            "",
		{HighPercent: 100, LowPercent: 99}:            "",
		{}:                                            "low threshold of 0 percent is not below",
		{HighPercent: 80, LowPercent: 80}:             "not below",
		{HighPercent: 101, LowPercent: 80}:            "not between 0 and 100",
		{HighPercent: 80, LowPercent: -1}:             "not between 0 and 100",
		{HighPercent: 80, LowPercent: 70, MinAge: -1}: "negative",
		{HighPercent: 80, LowPercent: 70, MinAge: time.Minute, MaxAge: time.Minute}: "not above the minimum",
	} {
		if err := p.check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestTracked(t *testing.T) {
	seen := tracked{}
	a := &runtimeapi.Image{Id: "1", RepoTags: []string{"a:1"}, RepoDigests: []string{"a@sha256:x"}, Size: 5}
	b := &runtimeapi.Image{Id: "2", Pinned: true}
	for n, used := range []string{"1", "a:1", "a@sha256:x"} {
		got := seen.see([]*runtimeapi.Image{a, b}, map[string]bool{used: true}, at(n))
		want := []Image{{ID: "1", Size: 5, InUse: true, Seen: at(0), Used: at(n)}, {ID: "2", Pinned: true, Seen: at(0)}}
		if !slices.Equal(got, want) {
			t.Errorf("by %s: %+v", used, got)
		}
	}
	if got := seen.see([]*runtimeapi.Image{a}, nil, at(9)); !slices.Equal(got, []Image{{ID: "1", Size: 5, Seen: at(0), Used: at(2)}}) {
		t.Errorf("no more used: %+v", got)
	}
	if len(seen) != 1 {
		t.Errorf("what is not there any more is kept: %+v", seen)
	}
}
