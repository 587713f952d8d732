package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fairlead.run/internal/errdefs"
)

const podHead = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n"

const onePod = podHead + "  containers:\n  - name: c\n    image: img:1\n"

func decode(text string) (*Objects, error) {
	return Decode([]Source{{"web.yaml", []byte(text)}})
}

// TestRefusals holds what must be refused, and what the refusal must say.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"nothing", "# a comment\n---\n", []string{"web.yaml: holds no document"}},
		{"scalar", "hello", []string{"web.yaml: document 1: is not an object"}},
		{"no kind", "apiVersion: v1\n", []string{"web.yaml:1: document 1: apiVersion and kind are required"}},
		{"unknown kind", "apiVersion: v1\nkind: Podd\n", []string{"web.yaml:2: document 1: Podd of v1 is not something", "v1 Pod"}},
		{"broken yaml", "apiVersion: v1\nkind: [Pod\n", []string{"web.yaml:", "document 1: is not valid YAML"}},
		{"four dashes", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n----\nkind: X\n", []string{"web.yaml:4: ", "exactly three dashes"}},
		{"unknown field", podHead + "  contaners:\n  - {name: c}\n  containers:\n  - {name: c, image: i}\n", []string{"web.yaml:6: document 1: Pod default/web: spec.contaners: is not a field of Pod; did you mean containers?"}},
		{"unknown inner field", podHead + "  containers:\n  - name: c\n    imagee: i\n", []string{"web.yaml:8: ", "spec.containers[0].imagee: is not a field of Pod; did you mean image?"}},
		{"wrong case", podHead + "  Containers:\n  - {name: c, image: i}\n", []string{"spec.Containers: is not a field"}},
		{"double key", onePod + "    image: img:2\n", []string{"web.yaml:9: document 1: ", `"image" already set`}},
		{"double key in JSON", `{"apiVersion":"v1","kind":"Pod","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, []string{"kind: duplicate field"}},
		{"second document", onePod + "---\n" + podHead + "  affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}\n", []string{"web.yaml:15: document 2: Pod default/web: spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution: not honoured by Fairlead yet; remove it"}},
		{"after the end", onePod + "...\nkind: Pod\n", []string{"goes on after its end"}},
		{"wrong type", podHead + "  containers: 3\n", []string{"spec.containers: a number does not fit here"}},
		{"doubled object", onePod + "---\n" + onePod, []string{"document 2: Pod default/web: is defined twice; the first is at web.yaml:1: document 1"}},
		{"set meets replica", templated("apps/v1", "StatefulSet", selector, "") + "---\n" + templated("apps/v1", "Deployment", selector, ""), []string{"Deployment default/w: its pod w-0 is defined twice; the first is at web.yaml:1: document 1"}},
		{"replica meets pod", "apiVersion: v1\nkind: Pod\nmetadata: {name: d-0}\nspec: {containers: [{name: c, image: i}]}\n---\n" + deployment("apps/v1", 1), []string{"its pod d-0 is defined twice"}},
		{"too many replicas", deployment("apps/v1", 2147483647), []string{"spec.replicas: 2147483647 is not between"}},
		{"too many pods", deployment("apps/v1", 1000) + "---\n" + onePod, []string{"ask for 1001 pods"}},
		{"selector", strings.Replace(deployment("apps/v1", 1), "matchLabels: {app: d}", "matchLabels: {app: e}", 1), []string{"spec.selector: app=e does not select"}},
		{"no name", "apiVersion: v1\nkind: ConfigMap\n", []string{"ConfigMap without a name: ", "metadata.name: is required"}},
		{"name", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../etc}\n", []string{"metadata.name: \"../etc\""}},
		{"namespace", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: a.b}\n", []string{"metadata.namespace: \"a.b\""}},
		{"key", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {../x: v}\n", []string{"data[../x]"}},
		{"only one value", onePod + "  schedulerName: mine\n", []string{`spec.schedulerName: "mine" is not honoured by Fairlead yet, only default-scheduler`}},
		{"probe", onePod + "    livenessProbe: {httpGet: {port: 0}}\n", []string{"web.yaml:9: ", "spec.containers[0].livenessProbe.httpGet.port: 0: must be between 1 and 65535"}},
		{"class by number", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: Run/C\n", []string{"web.yaml:4: ", "RuntimeClass a: handler: "}},
		{"alpha class", "apiVersion: node.k8s.io/v1alpha1\nkind: RuntimeClass\nmetadata: {name: a}\nspec: {}\n", []string{"spec.runtimeHandler: is required"}},
		{"alpha class, overhead", "apiVersion: node.k8s.io/v1alpha1\nkind: RuntimeClass\nmetadata: {name: a}\nspec:\n  runtimeHandler: runc\n  overhead:\n    podFixed:\n      pods: 1\n", []string{"web.yaml:8: ", `spec.overhead.podFixed[pods]: "pods": is not a resource of containers`}},
		{"class, selector", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: runc\nscheduling:\n  nodeSelector:\n    a: b\n    c: d e\n", []string{"web.yaml:8: ", `scheduling.nodeSelector[c]: "d e": a valid label`}},
		{"class, toleration", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: runc\nscheduling:\n  tolerations:\n  - operator: Exists\n    effect: Never\n", []string{"web.yaml:8: ", "scheduling.tolerations[0].effect: Unsupported value"}},
		{"alpha class, new field", "apiVersion: node.k8s.io/v1alpha1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: runc\n", []string{"handler: is not a field of RuntimeClass"}},
		{"not text", "\xff\xfe", []string{"is not UTF-8"}},
		{"deep, for the parser too", strings.Repeat("[", 20_000), []string{"web.yaml:1: document 1: is nested deeper than 64 levels"}},
		{"deep, for the parser too, later", "a: 1\nb: " + strings.Repeat("[", 20_000), []string{"web.yaml:2: document 1: is nested deeper than 64 levels"}},
		{"deep JSON with tabs", "\n{\n\t\"a\":\n\t" + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", []string{"web.yaml:4: document 1: is nested deeper than 64 levels"}},
		{"quantity of a class", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: runc\noverhead:\n  podFixed:\n    memory: some\n", []string{`web.yaml:7: document 1: RuntimeClass a: overhead.podFixed.memory: "some" is not a quantity`}},
		{"bytes of a class", "apiVersion: node.k8s.io/v1alpha1\nkind: RuntimeClass\nmetadata: {name: a}\nspec:\n  runtimeHandler: runc\n  overhead:\n    podFixed:\n      memory: 1500m\n", []string{"web.yaml:8: ", "spec.overhead.podFixed.memory: 1500m is 1.500 bytes; did you mean 1500M or 1500Mi?"}},
		{"secret that is not base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  ok: eA==\n  tls.key: '%'\n", []string{"web.yaml:6: document 1: Secret default/s: data[tls.key]: is not base64"}},
		{"NUL in a class", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a, annotations: {b: \"\\0\"}}\nhandler: runc\n", []string{"metadata.annotations.b: holds a NUL"}},
		{"status", onePod + "status: {phase: Running}\n", []string{"status: not honoured"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode(tt.text)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

// TestPodRefusals holds faults within one pod: the text replaces nothing and
// is added below spec.
func TestPodRefusals(t *testing.T) {
	container := func(s string) string { return "  containers:\n  - {name: c, image: i, " + s + "}\n" }
	tests := map[string]string{
		"  containers: []\n": "spec.containers: at least one",
		container("") + "  initContainers: [{name: c, image: i}]\n":                                                                     "spec.containers[0].name: \"c\" is the name of an earlier",
		"  containers: [{name: c}]\n":                                                                                                   "spec.containers[0].image: is required",
		container("ports: [{containerPort: 0}]"):                                                                                        "ports[0].containerPort",
		container("ports: [{containerPort: 1, hostPort: 8}, {containerPort: 2, hostPort: 8}]"):                                          "ports[1].hostPort: 8 is published twice",
		container("env: [{name: A=B, value: x}]"):                                                                                       "env[0].name",
		container("env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]"):                                                  "no ConfigMap default/m is in the files",
		container("envFrom: [{secretRef: {name: s}}]"):                                                                                  "no Secret default/s",
		container("env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]"):                                                       "fieldRef.fieldPath: \"spec.x\"",
		container("resources: {limits: {cpu: 1}, requests: {cpu: 2}}"):                                                                  "requests.cpu: 2 is more than the limit 1",
		container("resources: {limits: {nvidia.com/gpu: 1}}"):                                                                           "resources.limits.nvidia.com/gpu: not honoured",
		container("resources: {limits: {memory: 100E}}"):                                                                                "limits.memory: 100E is not between 0 and 1E",
		container("resources: {limits: {cpu: -1}}"):                                                                                     "limits.cpu: -1 is not between",
		container("resources: {limits: {cpu: abc}}"):                                                                                    `web.yaml:7: document 1: Pod default/web: spec.containers[0].resources.limits.cpu: "abc" is not a quantity such as 500m or 128Mi`,
		container("resources: {limits: {cpu: [1]}}"):                                                                                    "limits.cpu: \"[1]\" is not a quantity",
		container("resources: {limits: {memory: \"1e1000000000\"}}"):                                                                    "is not a quantity",
		container("resources: {requests: {memory: \"1e-1000000000\"}}"):                                                                 "is not a quantity",
		container("resources: {limits: {memory: 100m}}"):                                                                                "resources.limits.memory: 100m is a tenth of a byte; did you mean 100M or 100Mi?",
		container("resources: {requests: {memory: 1u}}"):                                                                                "requests.memory: 1u is 0.000001 bytes; write whole bytes",
		container("") + "  volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 500m}}]\n":                                         "sizeLimit: 500m is 0.500 bytes; did you mean 500M",
		container(`command: [sh, "-c", "a\0b"]`):                                                                                        "spec.containers[0].command[2]: holds a NUL",
		container(`env: [{name: A, value: "a\0b"}]`):                                                                                    "spec.containers[0].env[0].value: holds a NUL",
		container("resources: {limits: {memory: many}}"):                                                                                `"many" is not a quantity such as 500m or 128Mi`,
		container("volumeMounts: [{name: v, mountPath: /v}]"):                                                                           "volumeMounts[0].name: \"v\" is not the name of a volume",
		container("volumeMounts: [{name: v, mountPath: v}]") + "  volumes: [{name: v, emptyDir: {}}]\n":                                 "mountPath: \"v\" is not an absolute path",
		container("volumeMounts: [{name: v, mountPath: /v, subPath: ../../etc}]") + "  volumes: [{name: v, emptyDir: {}}]\n":            "subPath: \"../../etc\"",
		container("volumeMounts: [{name: v, mountPath: /v, subPathExpr: /$(A)}]") + "  volumes: [{name: v, emptyDir: {}}]\n":            "subPathExpr: \"/$(A)\" is not a relative path",
		container("volumeMounts: [{name: v, mountPath: /v, subPath: a, subPathExpr: $(A)}]") + "  volumes: [{name: v, emptyDir: {}}]\n": "subPathExpr: does not go with subPath",
		container("volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]") + "  volumes: [{name: v, emptyDir: {}}]": "needs a privileged container",
		container("") + "  volumes: [{name: v}]\n":                                                                                      "volumes[0]: names no kind",
		container("") + "  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]\n":                                                          "emptyDir.sizeLimit: fairlead run honours it for medium Memory and HugePages only",
		container("") + "  volumes: [{name: v, emptyDir: {medium: HugePages-x}}]\n":                                                     "medium: \"x\" is no size of pages",
		container("") + "  volumes: [{name: v, emptyDir: {medium: Disk}}]\n":                                                            "only Memory, HugePages, HugePages-SIZE",
		container("resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}"):                                                                  "limits.hugepages-2Mi: 3Mi is no whole number of pages of 2Mi",
		container("resources: {limits: {cpu: 1, hugepages-x: 4Mi}}"):                                                                    "\"x\" is no size of pages",
		container("resources: {limits: {hugepages-2Mi: 4Mi}}"):                                                                          "huge pages need a limit or request of cpu or memory",
		container("resources: {limits: {cpu: 1, hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 2Mi}}"):                                  "requests.hugepages-2Mi: 2Mi is not the limit, 4Mi",
		container("resources: {requests: {cpu: 1, hugepages-2Mi: 2Mi}}"):                                                                "requests.hugepages-2Mi: has no limit; write limits: {hugepages-2Mi: 2Mi}",
		container("") + "  volumes: [{name: v, image: {}}]\n":                                                                           "volumes[0].image.reference: is required",
		container("") + "  volumes: [{name: v, image: {reference: 'a b'}}]\n":                                                           "volumes[0].image.reference: \"a b\" holds a space",
		container("") + "  volumes: [{name: v, image: {reference: a, pullPolicy: Sometimes}}]\n":                                        "volumes[0].image.pullPolicy",
		container("") + "  volumes: [{name: v, image: {reference: a}, emptyDir: {}}]\n":                                                 "names more than one kind",
		container("securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]") + "  volumes: [{name: v, image: {reference: a}}]\n": "nothing can be mounted in an image",
		container("") + "  volumes: [{name: v, hostPath: {path: /a/../b}}]\n":                                             "hostPath.path",
		container("") + "  volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]\n":                                 "volumes[0].persistentVolumeClaim: fairlead run keeps nothing",
		container("") + "  securityContext: {sysctls: [{name: kernel.panic, value: '1'}]}\n":                              "belongs to the whole node",
		container("") + "  hostNetwork: true\n  securityContext: {sysctls: [{name: net.ipv4.ip_forward, value: '1'}]}\n":  "would change the node",
		container("") + "  securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../../x}}\n":             "localhostProfile",
		container("securityContext: {privileged: true, allowPrivilegeEscalation: false}"):                                 "cannot be false",
		container("imagePullPolicy: Sometimes"):                                                                           "imagePullPolicy",
		container("") + "  restartPolicy: Maybe\n":                                                                        "restartPolicy",
		container("") + "  activeDeadlineSeconds: 0\n":                                                                    "activeDeadlineSeconds: 0 is not between 1 and",
		container("restartPolicy: Sometimes"):                                                                             "containers[0].restartPolicy",
		container("restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]"):                      "restartPolicyRules: needs a restartPolicy",
		container("restartPolicy: Never, restartPolicyRules: [{exitCodes: {operator: In, values: [1]}}]"):                 "restartPolicyRules[0].action: is required",
		container("restartPolicy: Never, restartPolicyRules: [{action: Stop, exitCodes: {operator: In, values: [1]}}]"):   "restartPolicyRules[0].action",
		container("restartPolicy: Never, restartPolicyRules: [{action: Restart}]"):                                        "restartPolicyRules[0].exitCodes: is required",
		container("restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Is, values: []}}]"): "restartPolicyRules[0].exitCodes.operator",
		container("restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In}}]"):             "exitCodes.values: has 0 codes",
		container("") + "  initContainers: [{name: i, image: i, ports: [{containerPort: 1, hostPort: 1}]}]\n":             "an init container cannot publish a port",
		container("") + "  hostAliases: [{ip: nine}]\n":                                                                   "hostAliases[0].ip",
	}
	for text, want := range tests {
		_, err := decode(podHead + text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v\nwant %q", text, err, want)
			continue
		}
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q is of the wrong kind", err)
		}
	}
}

// TestBandwidthAnnotations is about the annotations that act.
func TestBandwidthAnnotations(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    kubernetes.io/egress-bandwidth: %s\nspec: {hostNetwork: %t, containers: [{name: c, image: i}]}\n"
	tests := []struct {
		value string
		host  bool
		want  string
	}{
		{"fast", false, `web.yaml:6: document 1: Pod default/a: metadata.annotations[kubernetes.io/egress-bandwidth]: "fast" is not a quantity such as 10M`},
		{`"1e-1000000000"`, false, "is not a quantity"},
		{`"100"`, false, "is not between 1k and 1P"},
		{"2P", false, "is not between 1k and 1P"},
		{"10M", true, "does not go with hostNetwork"},
		{"10M", false, ""},
	}
	for _, tt := range tests {
		_, err := decode(fmt.Sprintf(pod, tt.value, tt.host))
		if (tt.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.value, err, tt.want)
		}
	}
}

// TestNULFromElsewhere has values in objects that may hold any bytes, and uses
// them where they cannot be.
func TestNULFromElsewhere(t *testing.T) {
	objects := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: \"a\\0b\"}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: \"a\\0b\"}\n"
	for env, want := range map[string]string{
		"env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]": "env[0].valueFrom.configMapKeyRef: the value of key \"k\" holds a NUL",
		"env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]":    "env[0].valueFrom.secretKeyRef: the value of key \"k\" holds a NUL",
		"envFrom: [{configMapRef: {name: m}}]":                              "envFrom[0].configMapRef: the value of key \"k\" holds a NUL",
		"envFrom: [{secretRef: {name: s}}]":                                 "envFrom[0].secretRef: the value of key \"k\" holds a NUL",
		"volumeMounts: [{name: v, mountPath: /v}]":                          "",
	} {
		_, err := decode(podHead + "  volumes: [{name: v, configMap: {name: m}}]\n  containers: [{name: c, image: i, " + env + "}]\n" + objects)
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", env, err, want)
		}
	}
}

func deployment(version string, replicas int) string {
	return fmt.Sprintf(`apiVersion: %s
kind: Deployment
metadata: {name: d}
spec:
  replicas: %d
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: "i:1"}]}
`, version, replicas)
}

// TestHugePages takes what an API server would.
func TestHugePages(t *testing.T) {
	const text = `apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - {name: c, image: i, resources: {limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}, volumeMounts: [{name: v, mountPath: /v}]}
  - {name: d, image: i, resources: {limits: {hugepages-1Gi: 1Gi}, requests: {cpu: 1, hugepages-1Gi: 1Gi}}}
  volumes:
  - {name: v, emptyDir: {medium: HugePages-2Mi, sizeLimit: 2Mi}}
  - {name: w, emptyDir: {medium: HugePages}}
`
	objects, err := Decode([]Source{{Name: "p.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := objects.Pods[0].Spec.Containers[0].Resources.Limits["hugepages-2Mi"]; got.Value() != 4<<20 {
		t.Errorf("%s", got.String())
	}
}

func TestDecode(t *testing.T) {
	text := deployment("extensions/v1beta1", 2) + "--- # the class\n" + `kind: RuntimeClass
apiVersion: node.k8s.io/v1alpha1
metadata: {name: native}
spec:
  runtimeHandler: runc
  scheduling: {nodeSelector: {a: b}}
---
{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"a": "eA=="}, "stringData": {"a": "y"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {text: "a\n--- b\n"}
`
	o, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Pods) != 2 || o.Pods[1].Name != "d-1" || o.Pods[1].Namespace != "default" || o.Pods[1].Owner != "d" {
		t.Errorf("pods: %+v", o.Pods)
	}
	if o.Classes["native"].Handler != "runc" {
		t.Errorf("classes: %+v", o.Classes)
	}
	if len(o.Notes) != 1 || !strings.Contains(o.Notes[0], "scheduling") {
		t.Errorf("notes: %q", o.Notes)
	}
	if got := o.Secrets[Key{"n", "s"}].Data["a"]; string(got) != "y" {
		t.Errorf("secret is %q", got)
	}
	if o.ConfigMaps[Key{"default", "m"}] == nil {
		t.Error("config map is missing")
	}
}

func TestJSONWithTabs(t *testing.T) {
	if _, err := decode("{\n\t\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\"containers\": [{\"name\": \"c\", \"image\": \"i\"}]}\n}"); err != nil {
		t.Error(err)
	}
}

// TestHostile feeds what is meant to exhaust the reader. The test's own
// deadline is the limit.
func TestHostile(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	tests := map[string]string{
		"flow nesting":  strings.Repeat("[", 1<<20),
		"block nesting": strings.Repeat("- ", 1<<18),
		"json nesting":  `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}",
		"alias bomb":    bomb,
		"own alias":     "a: &a [*a]",
		"documents":     strings.Repeat("---\na: b\n", 100_000),
		"long key":      podHead + "  " + strings.Repeat("k", 1<<20) + ": 1\n",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := decode(text)
			if err == nil {
				t.Fatal("was accepted")
			}
			if strings.Count(err.Error(), "\n") > maxFaults {
				t.Error("the error is endless")
			}
		})
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "b", "a.yml": "a", "c.json": "c", "d.txt": "d"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(t.Context(), []string{dir, "-"}, strings.NewReader("in"))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, s := range got {
		text += string(s.Data)
	}
	if text != "abcin" {
		t.Errorf("read %q", text)
	}
	if _, err := Read(t.Context(), []string{"-"}, strings.NewReader(strings.Repeat("x", MaxSize+1))); err == nil || !strings.Contains(err.Error(), "larger than 10 MiB") {
		t.Errorf("a file without bounds: %v", err)
	}
	if _, err := Read(t.Context(), []string{t.TempDir()}, nil); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Read(t.Context(), []string{"https://example.org/pod.yaml"}, nil); err == nil || !strings.Contains(err.Error(), "curl -fsSL 'https://example.org/pod.yaml' | fairlead run -f -") {
		t.Errorf("an address: %v", err)
	}
	if _, err := Read(t.Context(), []string{"-", "-"}, strings.NewReader("")); err == nil {
		t.Error("stdin was read twice")
	}
}

// TestReadIsLeft reads from what nobody writes to. The test's own deadline is
// the limit.
func TestReadIsLeft(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, write := io.Pipe()
	for _, path := range []string{"-", fifo} {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		if _, err := Read(ctx, []string{path}, stdin); !errors.Is(err, gone) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// The reads that were left end here, so that they do not outlive the test.
	_ = write.Close()
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

func FuzzDecode(f *testing.F) {
	f.Add(onePod)
	f.Add(deployment("apps/v1", 3))
	f.Add("a: &a [*a]\n---\n? {b: c}\n: - d\n")
	f.Add("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: runc\noverhead: {podFixed: {memory: 1Ei}}\n")
	f.Add("apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(onePod, "\n", "\n  "))
	f.Add(strings.Replace(onePod, "name: web", "name: web\n  uid: x", 1) + "  nodeName: n\n  volumes: [{name: kube-api-access-x, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n")
	f.Add("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==}\nstringData: {b: c}\n")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := decode(text)
		if err != nil {
			return
		}
		for _, p := range o.Pods {
			if p.Name == "" || len(p.Spec.Containers) == 0 {
				t.Errorf("accepted a pod without name or containers:\n%s", text)
			}
		}
	})
}
