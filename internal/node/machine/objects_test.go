package machine

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const written = `
apiVersion: v1
kind: Secret
metadata: {name: door, annotations: {kubectl.kubernetes.io/last-applied-configuration: mellon}}
stringData: {password: mellon}
data: {other: bWVsbG9u}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: b}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {ports: [{port: 80}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: native}
handler: runc
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'i:1', args: [run]}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'i:1'}]}}}}
`

// objects are those of a kind, by name.
func (p *place) objects(kind string) map[string]map[string]any {
	p.t.Helper()
	code, text := p.ask(http.MethodGet, "/objects/"+kind, "")
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != http.StatusOK {
		p.t.Fatalf("%s: %d, %v: %s", kind, code, err, text)
	}
	out := map[string]map[string]any{}
	for _, o := range list.Items {
		if o["kind"] != kind || o["apiVersion"] == "" {
			p.t.Errorf("an object of kind %s is %v, %v", kind, o["apiVersion"], o["kind"])
		}
		out[o["metadata"].(map[string]any)["name"].(string)] = o
	}
	return out
}

// TestObjects lists objects of all kinds, and no value of a Secret.
func TestObjects(t *testing.T) {
	p := newPlace(t)
	p.write("all.yaml", written+"---\n"+job+"---\n"+podOf("a", "run", ""))
	p.boot()
	p.await("the pods", func() bool {
		return p.phase("a") == "Running" && p.phase("web-0") == "Running" && p.phase("web-1") == "Running"
	})
	for kind, name := range map[string]string{
		"Pod": "a", "Node": "n", "Secret": "door", "ConfigMap": "conf", "PersistentVolumeClaim": "data", "Service": "front", "RuntimeClass": "native",
		"Deployment": "web", "CronJob": "nightly", "Job": "sum",
	} {
		if got := p.objects(kind); got[name] == nil {
			t.Errorf("%s %s is not among %v", kind, name, got)
		}
	}
	status := p.objects("Deployment")["web"]["status"].(map[string]any)
	if status["replicas"] != 2.0 || status["readyReplicas"] != 2.0 {
		t.Errorf("%v", status)
	}
	p.await("the Job", func() bool {
		s := p.objects("Job")["sum"]["status"].(map[string]any)
		return s["startTime"] != nil
	})
	if phase := p.objects("PersistentVolumeClaim")["data"]["status"].(map[string]any)["phase"]; phase != "Bound" {
		t.Errorf("the claim is %v", phase)
	}
	_, text := p.ask(http.MethodGet, "/objects/Secret", "")
	if strings.Contains(text, "mellon") || strings.Contains(text, "bWVsbG9u") || !strings.Contains(text, "password") || !strings.Contains(text, "other") {
		t.Errorf("%s", text)
	}
	// What is shown is a copy: pods still get the value.
	p.write("user.yaml", strings.Replace(podOf("user", "run", ""), "image: 'i:1'", "image: 'i:1', env: [{name: P, valueFrom: {secretKeyRef: {name: door, key: password}}}]", 1))
	p.await("the pod", func() bool { return p.phase("user") == "Running" })
	env := p.fake.Config("user/c")[0].Envs
	if !slices.ContainsFunc(env, func(e *runtimeapi.KeyValue) bool { return e.Key == "P" && string(e.Value) == "mellon" }) {
		t.Errorf("%v", env)
	}
	if code, text := p.ask(http.MethodGet, "/objects/Widget", ""); code != http.StatusNotFound || !strings.Contains(text, "ConfigMap, CronJob") {
		t.Errorf("%d %s", code, text)
	}
}

// TestWhy tells what keeps a pod from being ready, until it is.
func TestWhy(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "exit 3", ""))
	p.boot()
	p.await("the reason", func() bool {
		_, text := p.ask(http.MethodGet, "/why", "")
		return strings.Contains(text, "container c: ended with exit code 3")
	})
	p.remove("a.yaml")
	p.await("the end", func() bool {
		_, text := p.ask(http.MethodGet, "/why", "")
		return text == "{}" && len(p.pods()) == 0
	})
}

// TestUsage tells rates to who asks first.
func TestUsage(t *testing.T) {
	p := newPlace(t)
	p.boot()
	var code int
	var text string
	p.await("an answer", func() bool { // the agent may still be about to start
		code, text = p.ask(http.MethodGet, "/usage", "")
		return code == http.StatusOK
	})
	var s statsv1.Summary
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Node.NodeName != "n" || s.Node.CPU == nil || s.Node.CPU.UsageNanoCores == nil {
		t.Errorf("%v: %s", err, text)
	}
}
