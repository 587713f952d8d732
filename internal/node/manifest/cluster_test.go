package manifest

import (
	"strings"
	"testing"
)

// stored is a pod in the form of kubectl get -o yaml: besides the name, the
// image and the volume named data, everything is the cluster's.
const stored = `apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: "2026-01-02T03:04:05Z"
  generateName: web-
  generation: 1
  labels: {app: web}
  managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, time: "2026-01-02T03:04:05Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]
  name: web
  namespace: default
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true, blockOwnerDeletion: true}]
  resourceVersion: "123"
  uid: 0a0b0c0d-0000-4000-8000-000000000000
spec:
  containers:
  - image: img:1
    imagePullPolicy: IfNotPresent
    name: c
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    volumeMounts:
    - mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      name: kube-api-access-x7k2p
      readOnly: true
    - mountPath: /data
      name: data
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  nodeName: node-1
  preemptionPolicy: PreemptLowerPriority
  priority: 0
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  serviceAccount: default
  serviceAccountName: default
  terminationGracePeriodSeconds: 30
  tolerations:
  - {effect: NoExecute, key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 300}
  - {effect: NoExecute, key: node.kubernetes.io/unreachable, operator: Exists, tolerationSeconds: 300}
  volumes:
  - name: kube-api-access-x7k2p
    projected:
      defaultMode: 420
      sources:
      - serviceAccountToken: {expirationSeconds: 3607, path: token}
      - configMap: {items: [{key: ca.crt, path: ca.crt}], name: kube-root-ca.crt}
      - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
  - name: data
    emptyDir: {}
status:
  phase: Running
  conditions: [{type: Ready, status: "True"}]
`

func TestPodOfACluster(t *testing.T) {
	o, err := decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	pod := o.Pods[0]
	if pod.UID != "" || pod.Spec.NodeName != "" || len(pod.Spec.Tolerations) > 0 || pod.Status.Phase != "" || pod.Labels["app"] != "web" {
		t.Errorf("something of the cluster is left, or something else is not: %+v", pod)
	}
	if v := pod.Spec.Volumes; len(v) != 1 || v[0].Name != "data" {
		t.Errorf("volumes: %+v", v)
	}
	if m := pod.Spec.Containers[0].VolumeMounts; len(m) != 1 || m[0].Name != "data" {
		t.Errorf("mounts: %+v", m)
	}
	if len(o.Notes) != 1 || !strings.HasPrefix(o.Notes[0], "web.yaml:1: document 1: Pod default/web: was stored in a cluster; what that added is left out: ") {
		t.Fatalf("notes: %q", o.Notes)
	}
	for _, want := range []string{"metadata.uid", "status", "spec.nodeName", "spec.tolerations[1]", "spec.volumes[0]", "spec.containers[0].volumeMounts[0]"} {
		if !strings.Contains(o.Notes[0], want) {
			t.Errorf("the note lacks %s: %s", want, o.Notes[0])
		}
	}
}

// TestPodOfAClusterIsHeldToTheRules changes what a person may have written.
func TestPodOfAClusterIsHeldToTheRules(t *testing.T) {
	for _, tt := range []struct{ old, replaced, want string }{
		{"key: node.kubernetes.io/unreachable", "key: mine", ""},
		{"emptyDir: {}", "nfs: {server: a, path: /b}", "web.yaml:51: document 1: Pod default/web: spec.volumes[0].nfs: not honoured"},
		{"mountPath: /data", "mountPath: data", "web.yaml:26: document 1: Pod default/web: spec.containers[0].volumeMounts[0].mountPath"},
		{"preemptionPolicy: PreemptLowerPriority", "preemptionPolicy: Always", "spec.preemptionPolicy: \"Always\" is not one of"},
		{"schedulerName: default-scheduler", "schedulerName: mine", "spec.schedulerName"},
		{"name: kube-api-access-x7k2p\n    projected", "name: token\n    projected", "spec.volumes[0].projected.sources[0].serviceAccountToken: not honoured"},
		{`creationTimestamp: "2026`, `creationTimestamp: "9`, "web.yaml:4: document 1: Pod default/web: metadata.creationTimestamp: "},
		{"status:\n", "statuss:\n", "web.yaml:52: document 1: Pod default/web: statuss: is not a field of Pod; did you mean status?"},
		{"  uid: 0a0b0c0d-0000-4000-8000-000000000000\n", "", ""},
	} {
		text := strings.Replace(stored, tt.old, tt.replaced, 1)
		if text == stored {
			t.Fatalf("%q is not in the manifest", tt.old)
		}
		_, err := decode(text)
		if (tt.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.replaced, err, tt.want)
		}
	}
	text := strings.NewReplacer("  uid: 0a0b0c0d-0000-4000-8000-000000000000\n", "", "  resourceVersion: \"123\"\n", "").Replace(stored)
	if _, err := decode(text); err == nil || !strings.Contains(err.Error(), "status: not honoured") {
		t.Errorf("what no cluster has stored loses its status: %v", err)
	}
}

func TestDeploymentOfACluster(t *testing.T) {
	text := strings.Replace(deployment("apps/v1", 1), "metadata: {name: d}", "metadata: {name: d, uid: u, annotations: {deployment.kubernetes.io/revision: '1'}}", 1)
	const spec = "  progressDeadlineSeconds: 600\n  revisionHistoryLimit: 10\n  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}\nstatus: {replicas: 1}\n"
	o, err := decode(text + spec)
	if err != nil || len(o.Pods) != 1 || len(o.Notes) != 1 || !strings.Contains(o.Notes[0], "spec.strategy") {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := decode(text + strings.Replace(spec, "RollingUpdate, rolling", "Canary, rolling", 1)); err == nil || !strings.Contains(err.Error(), "spec.strategy.type: \"Canary\" is not honoured") {
		t.Errorf("a strategy that nobody knows: %v", err)
	}
}
