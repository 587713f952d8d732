package show

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// decode reads objects of a kind from documents.
func decode(t *testing.T, k Kind, text string) (out []metav1.Object) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "---\n") {
		o := k.New()
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

func find(t *testing.T, name string) Kind {
	t.Helper()
	k, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const (
	runningPod = `
metadata: {name: web, namespace: default}
spec:
  nodeName: node
  runtimeClassName: gvisor
  initContainers: [{name: prepare}, {name: side, restartPolicy: Always}]
  containers: [{name: main}]
status:
  phase: Running
  podIP: 10.1.2.3
  startTime: "2026-01-02T11:00:00Z"
  conditions: [{type: Ready, status: "True"}]
  initContainerStatuses:
  - {name: prepare, state: {terminated: {exitCode: 0, reason: Completed}}}
  - {name: side, ready: true, started: true, state: {running: {}}}
  containerStatuses:
  - {name: main, ready: true, restartCount: 2, state: {running: {}}, lastState: {terminated: {finishedAt: "2026-01-02T11:55:00Z"}}}
`
	crashingPod = `
metadata: {name: crash, namespace: lab}
spec: {containers: [{name: main}]}
status:
  phase: Running
  containerStatuses:
  - name: main
    restartCount: 3
    state: {waiting: {reason: CrashLoopBackOff, message: back-off}}
`
	refusedPod = `
metadata: {name: refused, namespace: default}
spec: {initContainers: [{name: a}], containers: [{name: main}]}
status: {phase: Failed, reason: RuntimeClassNotFound, message: there is no class x}
`
)

// TestTables has a table of each kind, wide where there is more to show then.
func TestTables(t *testing.T) {
	for name, tt := range map[string]struct{ objects, want string }{
		"pods": {runningPod + "---" + crashingPod + "---" + refusedPod, `
NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|RUNTIMECLASS
web|2/2|Running|2 (5m ago)|60m|10.1.2.3|node|gvisor
lab/crash|0/1|CrashLoopBackOff|3||||
refused|0/1|RuntimeClassNotFound|0||||`},
		"nodes": {`
metadata: {name: node}
status:
  allocatable: {cpu: 1500m, memory: 512Mi, pods: "110"}
  addresses: [{type: Hostname, address: n}, {type: InternalIP, address: 192.0.2.1}]
  conditions: [{type: MemoryPressure, status: "True"}, {type: DiskPressure, status: "False"}, {type: Ready, status: "True"}]
  nodeInfo: {containerRuntimeVersion: "fairlead://1"}
`, `
NAME|STATUS|CPU|MEMORY|PODS|INTERNAL-IP|CONTAINER-RUNTIME
node|Ready,MemoryPressure|1500m|512Mi|110|192.0.2.1|fairlead://1`},
		"deployments": {`
metadata: {name: web}
spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {spec: {containers: [{image: a}, {image: b}]}}}
status: {readyReplicas: 1, updatedReplicas: 2, availableReplicas: 1}
`, `
NAME|READY|UP-TO-DATE|AVAILABLE|IMAGES|SELECTOR
web|1/3|2|1|a,b|app=web`},
		"daemonsets": {`
metadata: {name: agent, namespace: lab}
spec: {selector: {matchLabels: {app: agent}}, template: {spec: {containers: [{image: a}]}}}
status: {desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1}
`, `
NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|IMAGES|SELECTOR
lab/agent|1|1|0|1|0|a|app=agent`},
		"statefulsets": {"metadata: {name: db}\nstatus: {readyReplicas: 1}\n", "NAME|READY|IMAGES\ndb|1/1|"},
		"replicasets":  {"metadata: {name: rs}\nspec: {replicas: 0}\n", "NAME|DESIRED|CURRENT|READY|IMAGES\nrs|0|0|0|"},
		"jobs": {`
metadata: {name: sum}
spec: {completions: 2}
status: {succeeded: 2, startTime: "2026-01-02T11:00:00Z", completionTime: "2026-01-02T11:00:30Z", conditions: [{type: Complete, status: "True"}]}
---
metadata: {name: goes}
status: {startTime: "2026-01-02T11:59:00Z"}
`, `
NAME|STATUS|COMPLETIONS|DURATION|AGE|IMAGES
sum|Complete|2/2|30s|60m|
goes|Running|0/1|60s|60s|`},
		"cronjobs": {`
metadata: {name: nightly}
spec: {schedule: "0 3 * * *", timeZone: UTC, suspend: true}
status: {lastScheduleTime: "2026-01-02T03:00:00Z", active: [{kind: Job}]}
`, `
NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|IMAGES
nightly|0 3 * * *|UTC|True|1|9h|`},
		"configmaps": {"metadata: {name: conf}\ndata: {b: x, a: y}\nbinaryData: {c: eA==}\n", "NAME|DATA|KEYS\nconf|3|a,b,c"},
		"secrets":    {"metadata: {name: door}\ntype: Opaque\ndata: {password: bWVsbG9u}\n", "NAME|TYPE|DATA|KEYS\ndoor|Opaque|1|password"},
		"pvc": {`
metadata: {name: data}
spec: {volumeName: default/data, accessModes: [ReadWriteOnce, ReadOnlyMany], resources: {requests: {storage: 1Gi}}}
status: {phase: Bound}
`, "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES\ndata|Bound|default/data|1Gi|RWO,ROX"},
		"runtimeclasses": {"metadata: {name: gvisor}\nhandler: runsc\noverhead: {podFixed: {memory: 20Mi, cpu: 10m}}\n", "NAME|HANDLER|OVERHEAD\ngvisor|runsc|cpu=10m,memory=20Mi"},
		"pc":             {"metadata: {name: gold}\nvalue: 1000\nglobalDefault: true\ndescription: d\n---\nmetadata: {name: calm}\nvalue: -1\npreemptionPolicy: Never\n", "NAME|VALUE|GLOBAL-DEFAULT|PREEMPTIONPOLICY|DESCRIPTION\ngold|1000|true|PreemptLowerPriority|d\ncalm|-1|false|Never|"},
		"services": {`
metadata: {name: web}
spec: {type: ClusterIP, ports: [{port: 80, protocol: TCP}, {port: 53, protocol: UDP}], selector: {app: web}}
`, "NAME|TYPE|PORT(S)|SELECTOR\nweb|ClusterIP|80/TCP,53/UDP|app=web"},
		"namespaces": {"metadata: {name: lab}\n", "NAME\nlab"},
		"netpol":     {"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: closed, namespace: lab}}\n", "NAME|LEFT OUT\nlab/closed|traffic that it would refuse is NOT refused"},
	} {
		k := find(t, name)
		var got []string
		for _, row := range k.Table(decode(t, k, tt.objects), Options{Wide: true, Now: now}) {
			got = append(got, strings.Join(row, "|"))
		}
		if text := strings.Join(got, "\n"); text != strings.TrimSpace(tt.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, text, tt.want)
		}
	}
	if head := find(t, "cm").Table(nil, Options{})[0]; strings.Join(head, "|") != "NAME|DATA" {
		t.Errorf("a table that is not wide has %q", head)
	}
}

func TestStatus(t *testing.T) {
	k := find(t, "po")
	const init = "metadata: {name: p}\nspec: {initContainers: [{name: a}, {name: b}], containers: [{name: c}, {name: d}]}\nstatus:\n  phase: Pending\n  initContainerStatuses: "
	const both = "metadata: {name: p}\nspec: {containers: [{name: c}, {name: d}]}\nstatus:\n  phase: Running\n  containerStatuses: "
	for text, want := range map[string]string{
		init + "[{name: a, state: {waiting: {reason: PodInitializing}}}]":                                                                                "Init:0/2",
		init + "[{name: a, state: {terminated: {exitCode: 0}}}, {name: b, state: {running: {}}}]":                                                        "Init:1/2",
		init + "[{name: a, state: {terminated: {exitCode: 2}}}]":                                                                                         "Init:ExitCode:2",
		init + "[{name: a, state: {waiting: {reason: ErrImagePull}}}]":                                                                                   "Init:ErrImagePull",
		both + "[{name: c, state: {running: {}}}, {name: d, state: {terminated: {reason: Completed}}}]":                                                  "NotReady",
		both + "[{name: c, state: {terminated: {reason: OOMKilled}}}, {name: d, state: {running: {}}}]":                                                  "OOMKilled",
		both + "[{name: c, state: {terminated: {signal: 9}}}]":                                                                                           "Signal:9",
		both + "[{name: c, state: {running: {}}}]":                                                                                                       "Running",
		"metadata: {name: p, deletionTimestamp: \"2026-01-02T12:00:00Z\"}\nstatus: {phase: Running}\n":                                                   "Terminating",
		"metadata: {name: p}\nspec: {containers: [{name: c}]}\nstatus: {phase: Failed, reason: Evicted}\n":                                               "Evicted",
		"metadata: {name: p}\nspec: {initContainers: [{name: a}]}\nstatus: {phase: Pending}\n":                                                           "Pending",
		both + "[{name: c, state: {terminated: {reason: Completed}}}, {name: d, state: {running: {}}}]\n  conditions: [{type: Ready, status: \"True\"}]": "Running",
	} {
		if got := k.Table(decode(t, k, text), Options{Now: now})[1][2]; got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestWhy(t *testing.T) {
	k := find(t, "pod")
	for text, want := range map[string]string{
		runningPod: "", refusedPod: "RuntimeClassNotFound: there is no class x", crashingPod: "container main: CrashLoopBackOff: back-off",
	} {
		if got := Why(decode(t, k, text)[0], ""); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Why(decode(t, k, crashingPod)[0], "it ended with exit code 3"); got != "it ended with exit code 3" {
		t.Errorf("what the agent says is lost: %q", got)
	}
}

func TestFind(t *testing.T) {
	for text, want := range map[string]string{"pods": "Pod", "Pod": "Pod", "po": "Pod", "DS": "DaemonSet", "deploy": "Deployment", "runtimeclasses": "RuntimeClass", "persistentvolumeclaim": "PersistentVolumeClaim", "ing": "Ingress", "HPA": "HorizontalPodAutoscaler"} {
		if k, err := Find(text); err != nil || k.Name != want {
			t.Errorf("%s: %s, %v", text, k.Name, err)
		}
	}
	_, err := Find("widget")
	if err == nil || !strings.Contains(err.Error(), "pods (po), nodes (no), deployments (deploy)") {
		t.Error(err)
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 2 * time.Hour: "2h", 48 * time.Hour: "2d"} {
		if got := Age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
