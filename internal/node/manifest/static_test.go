package manifest

import (
	"strings"
	"testing"
)

// controlPlane is written as kubeadm writes those of a control plane, with what else a
// node honours that one machine alone has no use for.
const controlPlane = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/etcd.advertise-client-urls: https://10.0.0.1:2379
  creationTimestamp: "2026-01-02T03:04:05Z"
  finalizers: [example.org/late]
  labels: {component: etcd, tier: control-plane}
  name: etcd
  namespace: kube-system
spec:
  affinity: {podAntiAffinity: {}}
  automountServiceAccountToken: true
  containers:
  - command: [etcd]
    image: registry.k8s.io/etcd:3.6.5-0
    livenessProbe:
      failureThreshold: 8
      httpGet: {host: 127.0.0.1, path: /livez, port: probe-port, scheme: HTTP}
    name: etcd
    env:
    - {name: DISK, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage}}}
    ports:
    - {containerPort: 2381, name: probe-port, protocol: TCP}
    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
    resources:
      limits: {ephemeral-storage: 1Gi, example.org/device: 1}
      requests: {cpu: 100m, memory: 100Mi}
    volumeMounts:
    - {mountPath: /var/lib/etcd, name: etcd-data}
  hostNetwork: true
  imagePullSecrets: [{name: of-nobody}]
  nodeName: elsewhere
  nodeSelector: {kubernetes.io/os: linux}
  preemptionPolicy: PreemptLowerPriority
  priority: 2000001000
  priorityClassName: system-node-critical
  readinessGates: [{conditionType: example.org/ready}]
  securityContext:
    seccompProfile: {type: RuntimeDefault}
  subdomain: sub
  tolerations: [{effect: NoExecute, operator: Exists}]
  volumes:
  - hostPath: {path: /var/lib/etcd, type: DirectoryOrCreate}
    name: etcd-data
  - emptyDir: {sizeLimit: 1Gi}
    name: work
  - configMap: {name: of-nobody, optional: true}
    name: empty
  - nfs: {server: nfs, path: /}
    name: refused-by-the-node
status: {phase: Running}
`

// TestStatic takes what a kubelet takes from a folder of static pods.
func TestStatic(t *testing.T) {
	f, err := DecodeStatic(Source{"etcd.yaml", []byte(controlPlane)})
	if err != nil {
		t.Fatal(err)
	}
	o, problems := Merge([]*File{f})
	if len(problems) > 0 || len(o.Pods) != 1 {
		t.Fatalf("%d pods, %v", len(o.Pods), problems)
	}
	p := o.Pods[0]
	if p.Spec.PriorityClassName != "system-node-critical" || len(p.Spec.Tolerations) != 1 || p.Spec.NodeSelector["kubernetes.io/os"] != "linux" || p.Spec.Volumes[3].NFS == nil {
		t.Errorf("parts are lost: %+v", p.Spec)
	}
	if p.Status.Phase != "" || !p.CreationTimestamp.IsZero() || len(p.Finalizers) > 0 || p.Labels["tier"] != "control-plane" || p.Namespace != "kube-system" {
		t.Errorf("is not as somebody has written it: %+v, %+v", p.ObjectMeta, p.Status)
	}
	if _, err := DecodeFile(Source{"etcd.yaml", []byte(controlPlane)}); err == nil || !strings.Contains(err.Error(), "spec.readinessGates: not honoured") {
		t.Errorf("one machine takes it: %v", err)
	}
}

func TestStaticRefusals(t *testing.T) {
	for _, tt := range []struct{ old, with, want string }{
		{"tolerations:", "toleration:", "web.yaml:42: document 1: Pod kube-system/etcd: spec.toleration: is not a field of Pod"},
		{"{cpu: 100m, memory", "{cpu: few, memory", "requests.cpu: \"few\" is not a quantity"},
		{"name: work", "name: etcd-data", "\"etcd-data\" is the name of an earlier volume"},
		{"  - nfs: {server: nfs, path: /}\n    name", "  - name", "spec.volumes[3]: names no kind of volume"},
		{"nfs: {server: nfs, path: /}", "nfs: {server: nfs, path: /}\n    emptyDir: {}", "spec.volumes[3]: names more than one kind of volume"},
		{"  hostNetwork: true", "  ephemeralContainers: [{name: e, image: i}]", "spec.ephemeralContainers: are added to pods that run"},
		{"resource: limits.ephemeral-storage", "resource: limits.example.org/device", "is not one of"},
		{"nfs: {server: nfs, path: /}", "configMap: {name: m}", "spec.volumes[3].configMap: a static pod cannot use a ConfigMap, which only the API server has; use a file"},
		{"nfs: {server: nfs, path: /}", "persistentVolumeClaim: {claimName: c}", "spec.volumes[3].persistentVolumeClaim: a static pod cannot use a PersistentVolumeClaim"},
		{"valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage}}", "valueFrom: {secretKeyRef: {name: s, key: k}}", "spec.containers[0].env[0].valueFrom.secretKeyRef: a static pod cannot use a Secret"},
		{"kind: Pod\n", "kind: Service\n", "spec.affinity: is not a field of Service"},
	} {
		text := strings.Replace(controlPlane, tt.old, tt.with, 1)
		if _, err := DecodeStatic(Source{"web.yaml", []byte(text)}); text == controlPlane || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v\nwant %q", tt.with, err, tt.want)
		}
	}
}
