package join

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/manifest"
)

func podsNamed(names ...string) (out []*corev1.Pod) {
	for _, name := range names {
		out = append(out, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return out
}

func text(list []*corev1.Pod, unread []string) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ") + "; unread: " + strings.Join(unread, " ")
}

// TestGiven hands on what is known of the pods each time, and what is not.
func TestGiven(t *testing.T) {
	var run, mirrors string
	g := given{
		run:     func(list []*corev1.Pod, unread ...string) { run = text(list, unread) },
		mirrors: func(list []*corev1.Pod, unread ...string) { mirrors = text(list, unread) },
		unread:  []string{"file", "http"},
	}
	for _, step := range []struct {
		do           func()
		run, mirrors string
	}{
		{func() { g.keep(podsNamed("s"), []string{"http"}) }, "s; unread: api http", "s; unread: http"},
		{func() { g.bind(podsNamed("a", "b")) }, "s a b; unread: http", "s; unread: http"},
		{func() { g.keep(podsNamed("s", "t"), nil) }, "s t a b; unread: ", "s t; unread: "},
		{func() { g.bind(nil) }, "s t; unread: ", "s t; unread: "},
	} {
		step.do()
		if run != step.run || mirrors != step.mirrors {
			t.Errorf("run %q, mirrors %q; want %q, %q", run, mirrors, step.run, step.mirrors)
		}
	}
}

// TestBoundFirst has the API server answer before a manifest was read.
func TestBoundFirst(t *testing.T) {
	var run string
	g := given{run: func(list []*corev1.Pod, unread ...string) { run = text(list, unread) }, unread: []string{"file"}}
	if g.bind(podsNamed("a")); run != "a; unread: file" {
		t.Error(run)
	}
}

// TestStaticPod runs one as kubeadm and others write them: critical, with tolerations, and
// in a file whatever it is called.
func TestStaticPod(t *testing.T) {
	s := newSite(t)
	s.static.Folder = t.TempDir()
	text := `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd"}, "spec": {
		"priority": 2000001000, "priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}],
		"containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent"}]}, "status": {}}`
	if err := os.WriteFile(filepath.Join(s.static.Folder, "etcd.manifest"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.await("the mirror of the static pod, running", func() bool { return s.runs("etcd-n", 0) })
}

// TestOnlyPods refuses what is the API server's to keep, each once.
func TestOnlyPods(t *testing.T) {
	f, err := manifest.DecodeFile(manifest.Source{Name: "x.yaml", Data: []byte(`
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
`)})
	if err != nil {
		t.Fatal(err)
	}
	o, problems := manifest.Merge([]*manifest.File{f})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got, problems := onlyPods(o)
	if len(got) != 1 || got[0].Name != "p" {
		t.Errorf("%v", got)
	}
	var refused []string
	for _, p := range problems {
		_, kind, _ := strings.Cut(p.Err.Error(), "create the ")
		refused = append(refused, kind)
	}
	slices.Sort(refused)
	want := []string{"ConfigMap in the API server", "Deployment in the API server", "Job in the API server", "Secret in the API server"}
	if !slices.Equal(refused, want) {
		t.Errorf("refused %q, want %q", refused, want)
	}
}
