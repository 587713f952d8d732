package classes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/classes"
	"fairlead.run/internal/classes/manifests"
)

func set(texts ...string) *manifests.Set {
	s := &manifests.Set{}
	for i, text := range texts {
		s.Add(fmt.Sprintf("f%d", i), []byte(text))
	}
	return s
}

func snapshot(texts ...string) *classes.Snapshot {
	s := &classes.Snapshot{}
	s.AddManifests(set(texts...))
	return s
}

const cluster = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor, labels: {fairlead.run/isolation: sandbox}, annotations: {fairlead.run/is-default-class: "true"}}
handler: runsc
overhead: {podFixed: {memory: 32Mi}}
scheduling: {nodeSelector: {runtime: gvisor}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: native}
handler: runc
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {runtime: gvisor}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, runtimeHandlers: [{name: runsc}, {name: runc}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, runtimeHandlers: [{name: runc}]}
---
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: ci}
spec: {nodeName: n1, runtimeClassName: gvisor, containers: [{name: c, image: i, resources: {requests: {memory: 6Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: over, namespace: ci}
spec: {nodeName: n1, runtimeClassName: gvisor, containers: [{name: c, image: i, resources: {requests: {memory: 6Gi}}}]}
status: {phase: Succeeded}
---
apiVersion: fairlead.run/v1alpha1
kind: RuntimeClassPolicy
metadata: {name: strict}
spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ci}}, minimumIsolation: sandbox}
`

func waiting(namespace, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: waits, namespace: " + namespace + "}\nspec: {containers: [{name: c, image: i, resources: {requests: {memory: 3Gi}}}]" + spec + "}\n"
}

func TestList(t *testing.T) {
	got, err := classes.List(snapshot(cluster))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range got {
		lines = append(lines, fmt.Sprintf("%s %s %s default=%t %d/%d pods=%d memory=%s", c.Name, c.Handler, c.Isolation, c.Default, c.Matching, c.Nodes, c.Pods, c.Overhead.Memory()))
	}
	want := []string{
		"gvisor runsc sandbox default=true 1/2 pods=1 memory=32Mi",
		"native runc none default=false 2/2 pods=0 memory=0",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
}

func TestExplainPod(t *testing.T) {
	for name, tt := range map[string]struct {
		pod, namespace string
		schedulable    bool
		says           []string
	}{
		"the default class, and no room": {"", "ci", false, []string{"0/2 nodes: 1 lacks memory, 1 does not match RuntimeClass gvisor", "class gvisor by annotation", "policies [strict]", "n1: memory: 3104Mi needed, 32Mi of it overhead, and 2Gi free"}},
		"room elsewhere":                 {", runtimeClassName: native", "web", true, []string{"1/2 nodes: 1 lacks memory", "policies []", "n2: "}},
		"refused by a policy":            {", runtimeClassName: native", "ci", false, []string{"admission refuses it: spec.runtimeClassName: RuntimeClassPolicy strict demands isolation sandbox"}},
		"a class that is missing":        {", runtimeClassName: gvizor", "web", false, []string{"admission refuses it", "did you mean gvisor?"}},
		"what the handler cannot do":     {", hostPID: true", "web", false, []string{"RuntimeClass gvisor has no hostPID"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(cluster, waiting(tt.namespace, tt.pod))
			p, err := classes.ExplainPod(s, tt.namespace, "waits")
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("%s; policies %v; ", p.Sentence, p.Policies)
			if p.Injected != nil {
				text += fmt.Sprintf("class %s by %s; ", p.Class, p.Injected.ChosenBy)
			}
			for _, n := range p.Nodes {
				text += strings.Join(n.Names, ",") + ": " + strings.Join(n.Why, "; ") + " "
			}
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not say %q", text, want)
				}
			}
			if p.Schedulable != tt.schedulable {
				t.Errorf("schedulable is %t", p.Schedulable)
			}
		})
	}
	if p, err := classes.ExplainPod(snapshot(cluster), "ci", "runs"); err != nil || !p.Schedulable || p.Sentence != "it has node n1" || p.Handler != "runsc" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := classes.ExplainPod(snapshot(cluster), "ci", "nobody"); err == nil || !strings.Contains(err.Error(), "there is no pod ci/nobody") {
		t.Error(err)
	}
}

// A quota counts the pods that are there, and not the one that is asked about.
func TestExplainCountsQuotas(t *testing.T) {
	quota := func(pods int) string {
		return fmt.Sprintf("\n---\napiVersion: fairlead.run/v1alpha1\nkind: RuntimeClassPolicy\nmetadata: {name: few}\nspec: {namespaceSelector: {}, quota: [{className: gvisor, pods: %d}]}\n", pods)
	}
	for pods, refused := range map[int]bool{0: true, 1: true, 2: false} { // ci has one of the class that runs
		p, err := classes.ExplainPod(snapshot(cluster+quota(pods), waiting("ci", "")), "ci", "waits")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(p.Sentence, "RuntimeClassPolicy few allows") != refused {
			t.Errorf("a quota of %d: %s", pods, p.Sentence)
		}
	}
}

// Pods that the scheduler does not look at, and those of DaemonSets, of which each
// names its node.
func TestExplainPodsThatWait(t *testing.T) {
	for name, tt := range map[string]struct {
		pod, says   string
		schedulable bool
	}{
		"gates": {waiting("web", ", schedulingGates: [{name: a.b/c}, {name: d.e/f}]"), "it waits until somebody removes its scheduling gates (a.b/c, d.e/f); then 0/2 nodes", false},
		"ended": {waiting("web", "") + "status: {phase: Failed}\n", "it has ended (Failed), and is not scheduled again", false},
		"of a DaemonSet": {
			waiting("web", ", runtimeClassName: native, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n2]}]}]}}}"),
			"1/2 nodes: 1 does not match the pod's node affinity", true,
		},
	} {
		p, err := classes.ExplainPod(snapshot(cluster, tt.pod), "web", "waits")
		if err != nil || !strings.Contains(p.Sentence, tt.says) || p.Schedulable != tt.schedulable {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	if _, err := classes.ExplainPod(snapshot(cluster), "web", "runs"); err == nil || !strings.Contains(err.Error(), "there is no pod web/runs; namespace ci has one: choose with -n") {
		t.Error(err)
	}
}

// What could not be read is not taken for what is not there.
func TestUnread(t *testing.T) {
	s := snapshot(cluster, waiting("web", ", runtimeClassName: native"))
	s.Nodes, s.Unread = nil, []string{classes.Nodes, classes.Pods, classes.Policies}
	p, err := classes.ExplainPod(s, "web", "waits")
	if err != nil || p.Schedulable || !strings.Contains(p.Sentence, "nodes cannot be read") || len(p.Warnings) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	list, err := classes.List(s)
	if err != nil || !slices.Equal(list[0].Unknown, []string{classes.Nodes, classes.Pods}) {
		t.Errorf("%+v, %v", list, err)
	}
	if c, err := classes.ExplainClass(s, "native"); err != nil || !strings.Contains(c.Sentence, "nodes cannot be read") || len(c.Unknown) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	s.Unread = []string{classes.Known}
	if got := classes.Lint(set(waiting("web", ", runtimeClassName: gvizor")), s); len(got) != 1 || got[0].Severity != classes.Warning {
		t.Errorf("%+v", got)
	}
}

// Manifests take the place of what a cluster has, and of two of one name the first
// counts, as Lint has it.
func TestManifestsReplace(t *testing.T) {
	s := snapshot(cluster)
	before := slices.Clone(s.Pods)
	twice := set("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: native}\nhandler: crun\n"+
		"---\napiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n---\napiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n",
		"apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: native}\nhandler: other\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: runs, namespace: ci}\nstatus: {phase: Failed}\n")
	s.AddManifests(twice)
	list, err := classes.List(s)
	if err != nil || len(list) != 2 || list[1].Handler != "crun" || list[0].Pods != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if len(before) != 2 || before[0] == nil {
		t.Errorf("the list that was there is changed: %v", before)
	}
	got := classes.Faults(twice)
	if len(got) != 1 || got[0].File != "f1" || got[0].Rule != classes.RuleTwice || !strings.Contains(got[0].Message, "f0:1") {
		t.Errorf("%+v", got)
	}
	if none, err := classes.List(&classes.Snapshot{}); err != nil || none == nil {
		t.Errorf("no classes are %v, %v", none, err)
	}
}

// Every kind that makes pods is looked at, and a DaemonSet reaches cordoned nodes.
func TestLintTemplates(t *testing.T) {
	const template = "{metadata: {labels: {a: b}}, spec: {runtimeClassName: gvizor, containers: [{name: c, image: i}]}}"
	for kind, spec := range map[string]string{
		"v1 PodTemplate": "template: " + template, "v1 ReplicationController": "spec: {template: " + template + "}", "apps/v1 Deployment": "spec: {template: " + template + "}",
		"apps/v1 StatefulSet": "spec: {template: " + template + "}", "apps/v1 DaemonSet": "spec: {template: " + template + "}", "apps/v1 ReplicaSet": "spec: {template: " + template + "}",
		"batch/v1 Job": "spec: {template: " + template + "}", "batch/v1 CronJob": "spec: {jobTemplate: {spec: {template: " + template + "}}}",
	} {
		version, kind, _ := strings.Cut(kind, " ")
		got := classes.Lint(set("apiVersion: "+version+"\nkind: "+kind+"\nmetadata: {name: a}\n"+spec+"\n"), snapshot(cluster))
		if len(got) != 1 || got[0].Line != 4 || got[0].Rule != "ClassMissing" || !strings.HasSuffix(got[0].Field, "emplate.spec.runtimeClassName") {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	cordoned := snapshot(cluster)
	for _, n := range cordoned.Nodes {
		n.Spec.Unschedulable = true
	}
	for kind, want := range map[string]int{"DaemonSet": 0, "Deployment": 1} {
		text := "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {name: a}\nspec: {template: " + strings.Replace(template, "gvizor", "native", 1) + "}\n"
		if got := classes.Lint(set(text), cordoned); len(got) != want {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

// What is said of one object is bounded.
func TestLintIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: x\nscheduling:\n  nodeSelector:\n")
	for i := range 20000 {
		fmt.Fprintf(&text, "    k_%d_: '...'\n", i)
	}
	got := classes.Lint(set(text.String()), &classes.Snapshot{})
	if len(got) != 100 || !slices.ContainsFunc(got, func(f classes.Finding) bool { return f.Message == "has more of that; mend what is told first" }) {
		t.Errorf("%d findings", len(got))
	}
}

func TestExplainClass(t *testing.T) {
	c, err := classes.ExplainClass(snapshot(cluster), "native")
	if err != nil || c.Matching != 2 || !slices.Equal(c.Policies, []string{"strict demands isolation sandbox"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = classes.ExplainClass(snapshot(cluster), "gvisor"); err != nil || !slices.Equal(c.Users, []string{"ci (1)"}) || len(c.Groups) != 2 || len(c.Groups[0].Why) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if !slices.ContainsFunc(c.Features, func(f classes.Feature) bool { return f.Name == "hostPID" && f.Support == "no" }) {
		t.Errorf("features %+v", c.Features)
	}
	if _, err := classes.ExplainClass(snapshot(cluster), "gviso"); err == nil || !strings.Contains(err.Error(), "did you mean gvisor?") {
		t.Error(err)
	}
}

func TestLint(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string // file:line severity rule field
	}{
		"all is well": {waiting("web", ""), nil},
		"templates": {`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {a: b}}
  template:
    spec:
      runtimeClassName: gvizor
      containers: [{name: c, image: i}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "@daily"
  jobTemplate:
    spec:
      template:
        spec:
          runtimeClassName: gvisor
          restartPolicy: Never
          nodeSelector:
            runtime: kata
          containers: [{name: c, image: i}]
`, []string{"f0:8 error ClassMissing spec.template.spec.runtimeClassName", "f0:23 error SelectorConflict spec.jobTemplate.spec.template.spec.nodeSelector[runtime]"}},
		"fields": {`apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  runtimeClas: x
  containers: [{name: c, image: i}]
---
apiVersion: v1
kind: Pod
metadata: {name: b}
spec:
  hostPID: "yes"
  containers: [{name: c, image: i}]
`, []string{"f0:5 error FieldInvalid spec.runtimeClas", "f0:12 error FieldInvalid spec.hostPID"}},
		"no YAML, and the rest goes on": {"a: [b\n---\n" + waiting("web", ", runtimeClassName: none-such"), []string{"f0:1 error Unreadable ", "f0:6 error ClassMissing spec.runtimeClassName"}},
		"a key that is there twice":     {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nkind: Pod\n", []string{"f0:4 error Unreadable "}},
		"classes": {`apiVersion: node.k8s.io/v1beta1
kind: RuntimeClass
metadata: {name: old}
handler: runc
---
apiVersion: node.k8s.io/v1alpha1
kind: RuntimeClass
metadata: {name: older}
spec:
  runtimeHandler: Runc
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: nowhere
  labels:
    fairlead.run/isolation: much
  annotations:
    fairlead.run/is-default-class: "true"
handler: kata
`, []string{
			"f0:1 error DeprecatedVersion apiVersion", "f0:6 error DeprecatedVersion apiVersion", "f0:10 error ClassInvalid spec.runtimeHandler",
			"f0:17 error ClassInvalid metadata.labels[fairlead.run/isolation]", "f0:19 error SecondDefault metadata.annotations[fairlead.run/is-default-class]", "f0:20 warning HandlerNowhere handler",
		}},
		"policies": {`apiVersion: fairlead.run/v1alpha1
kind: RuntimeClassPolicy
metadata: {name: a}
spec:
  namespaceSelector: {}
  mode: strict
  allowedClasses:
  - native
  - nativ
---
apiVersion: fairlead.run/v1alpha1
kind: RuntimeClassPolicy
metadata: {name: b}
spec:
  namespaceSelector: {}
  mode: warn
  allowedClasses:
  - native
  - nativ
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  runtimeClassName: gvisor
  containers: [{name: c, image: i}]
`, []string{"f0:6 error PolicyInvalid spec.mode", "f0:19 warning PolicyClassMissing spec.allowedClasses[1]", "f0:25 error PolicyUnusable spec.runtimeClassName", "f0:25 warning ClassNotAllowed spec.runtimeClassName"}},
		"old annotations": {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    io.kubernetes.cri.untrusted-workload: \"true\"\nspec: {containers: [{name: c, image: i}]}\n", []string{"f0:6 warning Advice metadata.annotations[io.kubernetes.cri.untrusted-workload]"}},
		"a name twice":    {waiting("web", "") + "---\n" + waiting("web", ""), []string{"f0:8 error Twice metadata.name"}},
		"lists":           {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n  spec:\n    runtimeClassName: none-such\n    containers: [{name: c, image: i}]\n", []string{"f0:8 error ClassMissing spec.runtimeClassName"}},
		"JSON with tabs":  {"{\n\t\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\"runtimeClassName\": \"no\", \"containers\": []}}\n", []string{"f0:3 error ClassMissing spec.runtimeClassName"}},
		"other kinds":     {"apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\nreplicas: 3\n", nil},
		"a replacement":   {"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: gvisor}\nhandler: runc\n---\n" + waiting("web", ", runtimeClassName: gvisor, nodeSelector: {runtime: other}"), []string{"f0:9 warning HandlerNowhere spec.runtimeClassName"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			findings := classes.Lint(set(tt.text), snapshot(cluster))
			for _, f := range findings {
				got = append(got, fmt.Sprintf("%s:%d %s %s %s", f.File, f.Line, f.Severity, f.Rule, f.Field))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q\n%+v", got, tt.want, findings)
			}
		})
	}
	// Whoever has no classes at hand cannot say that one is missing.
	if got := classes.Lint(set(waiting("web", ", runtimeClassName: any")), &classes.Snapshot{}); len(got) != 1 || got[0].Severity != classes.Warning {
		t.Errorf("without any class: %+v", got)
	}
}

// BenchmarkList is a large cluster: classes of few kinds, and many pods.
func BenchmarkList(b *testing.B) {
	s := &classes.Snapshot{}
	for i := range 5000 {
		s.Classes = append(s.Classes, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}, Handler: fmt.Sprint("h", i%10)})
	}
	for i := range 100 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: fmt.Sprint("h", i%10)}}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range 20000 {
		name := fmt.Sprint("c", i%5000)
		s.Pods = append(s.Pods, &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &name}})
	}
	for b.Loop() {
		if list, err := classes.List(s); err != nil || list[0].Pods != 4 || list[0].Matching != 10 {
			b.Fatal(list[0], err)
		}
	}
}
