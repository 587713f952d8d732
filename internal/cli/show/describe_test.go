package show

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const described = `
metadata: {name: web, namespace: default, labels: {b: "2", a: "1"}}
spec:
  nodeName: node
  runtimeClassName: gvisor
  priority: 7
  priorityClassName: gold
  resources: {requests: {cpu: "1"}, limits: {cpu: "2"}}
  initContainers: [{name: prepare, image: a}]
  containers:
  - name: main
    image: b
    command: [serve]
    args: [--fast]
    resources: {requests: {cpu: 100m, memory: 1Mi}}
    readinessProbe: {httpGet: {port: 80, path: /ok}, periodSeconds: 5}
    env: [{name: PASSWORD, value: mellon}]
    envFrom: [{secretRef: {name: door}}]
    volumeMounts: [{name: data, mountPath: /data, subPath: x, readOnly: true}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: disk}}, {name: tmp, emptyDir: {sizeLimit: 1Mi}}]
status:
  phase: Running
  qosClass: Burstable
  podIPs: [{ip: 10.1.2.3}, {ip: "fd00::1"}]
  startTime: "2026-01-02T11:00:00Z"
  conditions: [{type: Ready, status: "False", reason: ContainersNotReady}]
  initContainerStatuses: [{name: prepare, state: {terminated: {exitCode: 0, reason: Completed, finishedAt: "2026-01-02T11:00:01Z"}}}]
  containerStatuses:
  - name: main
    restartCount: 1
    containerID: "fairlead://x"
    state: {waiting: {reason: CrashLoopBackOff, message: "two\nlines"}}
    lastState: {terminated: {exitCode: 3, reason: Error, finishedAt: "2026-01-02T11:59:00Z"}}
`

const description = `
Name:            web
Namespace:       default
Labels:          a=1, b=2
Node:            node
Start Time:      2026-01-02T11:00:00Z
Status:          CrashLoopBackOff
Why:             container main: ended with exit code 3
IPs:             10.1.2.3, fd00::1
Priority:        7
Priority Class:  gold
QoS Class:       Burstable
Requests:        cpu=1
Limits:          cpu=2
Runtime Class:   gvisor
Handler:         runsc
Init Containers:
  prepare:
    Image:          a
    State:          Terminated: Completed: exit code 0 at 2026-01-02T11:00:01Z
    Ready:          false
    Restart Count:  0
Containers:
  main:
    Image:          b
    Command:        serve --fast
    Container ID:   fairlead://x
    State:          Waiting: CrashLoopBackOff: two\nlines
    Last State:     Terminated: Error: exit code 3 at 2026-01-02T11:59:00Z
    Ready:          false
    Restart Count:  1
    Requests:       cpu=100m,memory=1Mi
    Readiness:      http-get port 80, path /ok; delay 0s, timeout 1s, period 5s, successes 1, failures 3
    Environment:    PASSWORD, all of secret door
    Mount:          /data from data, path x, read-only
Conditions:
  Ready:  False: ContainersNotReady
Volumes:
  data:  persistentVolumeClaim: disk
  tmp:   emptyDir, up to 1Mi
Events:
  60s ago (3 times)  Warning  BackOff  again
`

func TestDescribe(t *testing.T) {
	k := find(t, "pod")
	var out strings.Builder
	event := corev1.Event{Type: "Warning", Reason: "BackOff", Message: "again", Count: 3, LastTimestamp: metav1.NewTime(now.Add(-60e9))}
	f := Facts{Object: decode(t, k, described)[0], Why: "container main: ended with exit code 3", Handler: "runsc", Events: []corev1.Event{event}, Now: now}
	if err := k.Describe(&out, f); err != nil || out.String() != description[1:] {
		t.Errorf("%v\n%s\nwant:\n%s", err, out.String(), description)
	}
	out.Reset()
	k = find(t, "secret")
	secret := decode(t, k, "metadata: {name: door}\ntype: Opaque\ndata: {password: bWVsbG9u}\n")[0]
	if err := k.Describe(&out, Facts{Object: secret, Now: now}); err != nil || out.String() != "Name:  door\nType:  Opaque\nData:  1\nKeys:  password\n" {
		t.Errorf("%v\n%q", err, out.String())
	}
}
