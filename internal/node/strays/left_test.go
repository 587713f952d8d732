package strays

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/source"
)

// TestLeft finds what an agent has left of pods, wherever it is, and nothing of others.
func TestLeft(t *testing.T) {
	const boxed, paged, foldered, others, takenOver, recent = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002",
		"00000000-0000-0000-0000-000000000003", "00000000-0000-0000-0000-000000000004", "00000000-0000-0000-0000-000000000005", "00000000-0000-0000-0000-000000000006"
	s := Search{
		Root: t.TempDir(), State: t.TempDir(), Failed: func(err error) { t.Error(err) },
		Mine: func(s *runtimeapi.PodSandbox) bool { return s.GetAnnotations()["of"] == "me" },
	}
	s.Ledger = ledger.Ledger{Root: s.Root, Agent: "me"}
	for _, uid := range []types.UID{boxed, paged, takenOver} {
		if err := s.Ledger.Write(uid, ledger.Record{Namespace: "lab", Name: "paged", Agent: "me", Source: source.File}); err != nil {
			t.Fatal(err)
		}
	}
	for uid, age := range map[string]time.Duration{boxed: 1000 * time.Hour, foldered: 24 * 365 * 10 * time.Hour, recent: 0} {
		dir := removal.Dirs(s.Root, s.State, uid).Disk
		if err := os.MkdirAll(filepath.Join(dir, "volumes"), 0o755); err != nil {
			t.Fatal(err)
		}
		if at := time.Now().Add(-age); os.Chtimes(dir, at, at) != nil {
			t.Fatal("the age of a folder cannot be set")
		}
	}
	box := func(uid, name, of string) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{
			Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: "lab", Name: name, Uid: uid},
			Annotations: map[string]string{"of": of, source.SourceAnnotation: source.Address},
		}
	}
	list := []*runtimeapi.PodSandbox{box(boxed, "boxed", "me"), box(others, "others", "them"), box(takenOver, "taken", "them")}
	seen := func(pods map[types.UID]*corev1.Pod) map[types.UID]string {
		out := map[types.UID]string{}
		for uid, p := range pods {
			out[uid] = p.Namespace + "/" + p.Name + " from " + source.Of(p)
			if p.UID != uid || len(p.Spec.Containers) > 0 {
				t.Errorf("%+v", p)
			}
		}
		return out
	}
	want := map[types.UID]string{boxed: "lab/boxed from http", paged: "lab/paged from file", foldered: "/ from nowhere"}
	if got := seen(s.Left(list)); !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.Ledger = ledger.Ledger{} // nothing outlives it but its sandboxes
	if got, want := seen(s.Left(list)), map[types.UID]string{boxed: "lab/boxed from http"}; !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFolders finds each folder once that nobody knows, wherever it is.
func TestFolders(t *testing.T) {
	root, state := t.TempDir(), t.TempDir()
	for _, dir := range []string{root + "/a", root + "/b", state + "/b", state + "/c", state + "/known"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := folders([]string{root, state, filepath.Join(root, "none")}, func(uid string) bool { return uid == "known" })
	if err != nil || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Error(got, err)
	}
}
