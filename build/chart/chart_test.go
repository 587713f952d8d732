package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	yamlnode "go.yaml.in/yaml/v3"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const (
	top    = "../.."
	folder = top + "/deploy/charts/fairlead"
)

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// made is the kinds that are read strictly. Of the others no Go types are here.
var made = map[string]func() any{
	"Namespace":                      func() any { return &corev1.Namespace{} },
	"ServiceAccount":                 func() any { return &corev1.ServiceAccount{} },
	"Service":                        func() any { return &corev1.Service{} },
	"ConfigMap":                      func() any { return &corev1.ConfigMap{} },
	"Deployment":                     func() any { return &appsv1.Deployment{} },
	"PodDisruptionBudget":            func() any { return &policyv1.PodDisruptionBudget{} },
	"NetworkPolicy":                  func() any { return &networkingv1.NetworkPolicy{} },
	"Role":                           func() any { return &rbacv1.Role{} },
	"RoleBinding":                    func() any { return &rbacv1.RoleBinding{} },
	"ClusterRole":                    func() any { return &rbacv1.ClusterRole{} },
	"ClusterRoleBinding":             func() any { return &rbacv1.ClusterRoleBinding{} },
	"MutatingWebhookConfiguration":   func() any { return &admissionregistrationv1.MutatingWebhookConfiguration{} },
	"ValidatingWebhookConfiguration": func() any { return &admissionregistrationv1.ValidatingWebhookConfiguration{} },
	"CustomResourceDefinition":       func() any { return &map[string]any{} },
	"PodMonitor":                     func() any { return &map[string]any{} },
	"ServiceMonitor":                 func() any { return &map[string]any{} },
	"PrometheusRule":                 func() any { return &map[string]any{} },
	"RuntimePayload":                 func() any { return &map[string]any{} },
}

// documents are the objects of a rendered template, as JSON, with their kinds.
func documents(t *testing.T, name, text string) (kinds []string, objects []string) {
	t.Helper()
	for decoder := yamlnode.NewDecoder(strings.NewReader(text)); ; {
		var document yamlnode.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return kinds, objects
		} else if err != nil {
			t.Fatalf("%s: %v:\n%s", name, err, text)
		}
		one, err := yamlnode.Marshal(&document)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(one)) == "null" {
			continue
		}
		kind := fmt.Sprint(parse(t, string(one))["kind"])
		if made[kind] == nil {
			t.Fatalf("%s: what is a %s?", name, kind)
		}
		object := made[kind]()
		if err := yaml.UnmarshalStrict(one, object); err != nil {
			t.Errorf("%s: %s: %v:\n%s", name, kind, err, one)
		}
		encoded, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		kinds, objects = append(kinds, kind), append(objects, string(encoded))
	}
}

// everything is the objects that values make, by kind and name.
func everything(t *testing.T, in, vals string) map[string]string {
	t.Helper()
	rendered, err := render(t.Context(), load(t), in, parse(t, vals))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, text := range rendered {
		if !isManifest(name) {
			continue
		}
		kinds, objects := documents(t, name, text)
		for i, o := range objects {
			var head struct {
				Metadata struct{ Name, Namespace string }
			}
			if err := json.Unmarshal([]byte(o), &head); err != nil {
				t.Fatal(err)
			}
			key := kinds[i] + " " + head.Metadata.Name
			if out[key] != "" {
				t.Errorf("%s is there twice", key)
			}
			if ns := head.Metadata.Namespace; ns != "" && ns != in && !(strings.Contains(key, "operator") || strings.Contains(key, "installer")) {
				t.Errorf("%s is in namespace %s, and the release in %s", key, ns, in)
			}
			out[key] = o
		}
	}
	return out
}

func TestManifestsAreFresh(t *testing.T) {
	files, err := plainManifests(t.Context(), folder)
	if err != nil || len(files) < 6 {
		t.Fatalf("%v %d", err, len(files))
	}
	inSeed, err := seedManifests(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	inGarden, err := gardenManifests(t.Context(), folder)
	if err != nil || len(inGarden) < 5 {
		t.Fatalf("%v %d", err, len(inGarden))
	}
	page, err := rolesPage(files, inGarden, inSeed)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(files, inGarden)
	files["../docs/rbac.md"] = page
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(top, "deploy", path))
		if err != nil || string(got) != want {
			t.Errorf("deploy/%s is not what the chart makes (%v): make generate", path, err)
		}
	}
}

func TestStaleManifestsAreRemoved(t *testing.T) {
	deploy := t.TempDir()
	if err := os.Mkdir(filepath.Join(deploy, "webhook"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"webhook/kept.yaml": fmt.Sprintf(header, "x"), "webhook/stale.yaml": fmt.Sprintf(header, "y"), "webhook/own.yaml": "# by hand\n",
	} {
		if err := os.WriteFile(filepath.Join(deploy, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeRendered(deploy, map[string]string{"webhook/kept.yaml": ""}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(deploy + "/webhook/*")
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "kept.yaml" || filepath.Base(left[1]) != "own.yaml" {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestLint(t *testing.T) {
	if err := lintAll(folder); err != nil {
		t.Error(err)
	}
}

// allOn are values that turn everything on.
func allOn(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var digest = strings.Repeat("0123456789abcdef", 4)

func TestRendered(t *testing.T) {
	for _, tt := range []struct {
		name, in, vals string
		has            map[string][]string // text in the object of that kind and name
		lacks          []string            // objects, or "object: text"
	}{
		{
			name: "as it comes", in: "fairlead-system", vals: "{}",
			has: map[string][]string{
				"Deployment fairlead-webhook":                                {`"image":"fairlead:latest"`, `"args":["webhook"]`, `"replicas":2`, `"podAntiAffinity"`},
				"PodDisruptionBudget fairlead-webhook":                       {`"minAvailable":1`},
				"Role fairlead-webhook":                                      {`"fairlead-webhook-certificate"`},
				"ClusterRole fairlead-webhook":                               {`"patch"`},
				"CustomResourceDefinition runtimeclasspolicies.fairlead.run": {`"helm.sh/resource-policy":"keep"`},
				"MutatingWebhookConfiguration fairlead-webhook":              {`"values":["kube-system","fairlead-system"]`, `"namespace":"fairlead-system"`},
			},
			lacks: []string{"Deployment fairlead-operator", "ClusterRole fairlead-operator", "Namespace", "NetworkPolicy", "PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap"},
		},
		{
			name: "everything off", in: "fairlead-system", vals: "{webhook: {enabled: false}, crds: {install: false}}",
			lacks: []string{""},
		},
		{
			name: "monitors of nothing", in: "fairlead-system",
			vals:  "{webhook: {enabled: false}, monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}, crds: {install: false}}",
			lacks: []string{""},
		},
		{
			name: "everything on", in: "elsewhere", vals: allOn(t),
			has: map[string][]string{
				"Namespace elsewhere":             {`"restricted"`},
				"ServiceAccount fairlead-webhook": {`"imagePullSecrets":[{"name":"pull"}]`},
				"Deployment fairlead-webhook": {
					`"image":"registry.example/fairlead@sha256:` + digest + `"`, `"replicas":3`, `"team":"platform"`, `"note":"1"`,
					`"args":["webhook","--namespace=elsewhere","--exempt=kube-system","--exempt=storage","--exempt=nodes-elsewhere","--cert-dir=/certificates","--client-ca=/clients/ca.crt","--client-name=kube-apiserver","--log-level=debug"]`,
					`"secretName":"serving"`, `"name":"authorities"`, `"mountPath":"/clients"`, `"tolerations":[{"key":"node-role.kubernetes.io/control-plane"`, `"nodeAffinity"`,
				},
				"NetworkPolicy fairlead-webhook":                  {`"policyTypes":["Ingress","Egress"]`, `"cidr":"192.0.2.1/32"`, `"cidr":"2001:db8::/64"`, `"port":6443`},
				"ValidatingWebhookConfiguration fairlead-webhook": {`"values":["kube-system","storage","nodes-elsewhere","elsewhere"]`, `"caBundle":"` + digest + `"`, `"cert-manager.io/inject-ca-from":"there/serving"`, `"namespace":"elsewhere"`},
				"PodMonitor fairlead-webhook":                     {`"release":"prometheus"`},
				"ServiceMonitor fairlead-webhook":                 {`"release":"prometheus"`},
				"Service fairlead-webhook-metrics":                {`"clusterIP":"None"`},
				"PrometheusRule fairlead":                         {`"release":"prometheus"`, `"namespace":"elsewhere"`, "kubectl -n elsewhere"},
				"Namespace nodes-elsewhere":                       {`"privileged"`, `"helm.sh/resource-policy":"keep"`},
				"ServiceAccount fairlead-installer":               {`"automountServiceAccountToken":false`, `"namespace":"nodes-elsewhere"`},
				"ServiceAccount fairlead-operator":                {`"imagePullSecrets":[{"name":"pull"}]`},
				"PodDisruptionBudget fairlead-operator":           {`"minAvailable":1`},
				"Deployment fairlead-operator":                    {`"args":["--namespace=nodes-elsewhere","--log-level=debug"]`, `"command":["/fairlead-operator"]`, `"namespace":"nodes-elsewhere"`, `"team":"platform"`, `"runAsNonRoot":true`},
				"NetworkPolicy fairlead-installer":                {`"policyTypes":["Ingress","Egress"]`, `"app.kubernetes.io/managed-by":"fairlead-operator"`},
				"NetworkPolicy fairlead-operator":                 {`"port":"metrics"`},
				"PodMonitor fairlead-operator":                    {`"namespace":"nodes-elsewhere"`},
				"ServiceMonitor fairlead-operator":                {`"namespace":"nodes-elsewhere"`},
				"ConfigMap fairlead-dashboard":                    {`"grafana_dashboard":"1"`, `fairlead.json`},
			},
			lacks: []string{"Role fairlead-webhook", "RoleBinding fairlead-webhook", "ClusterRole fairlead-webhook: patch", "Deployment fairlead-webhook: podAntiAffinity", "PrometheusRule fairlead: fairlead-system"},
		},
		{
			name: "a single replica", in: "fairlead-system", vals: "{webhook: {replicas: 1}}",
			has: map[string][]string{"Deployment fairlead-webhook": {`"replicas":1`}}, lacks: []string{"PodDisruptionBudget"},
		},
		{
			name: "in a seed of Gardener's", in: "fairlead-system", vals: "{operator: {enabled: true, gardener: true, types: [wasm]}, webhook: {enabled: false}}",
			has: map[string][]string{
				"Deployment fairlead-operator":  {`"--gardener"`},
				"ClusterRole fairlead-operator": {`"operatingsystemconfigs"`, `"resourceNames":["extension-runtime-wasm-fairlead"]`},
				"Role fairlead-operator":        {`"leases"`},
			},
			lacks: []string{"ClusterRole fairlead-operator: nodes", "Role fairlead-operator: daemonsets", "NetworkPolicy fairlead-installer"},
		},
		{
			name: "in a garden cluster", in: "elsewhere", vals: "{webhook: {garden: true}}",
			has: map[string][]string{
				"Deployment fairlead-webhook":  {`"args":["webhook","--namespace=elsewhere","--garden","--mutating-configuration="]`, `"replicas":2`},
				"ClusterRole fairlead-webhook": {`"rules":[{"verbs":["get"],"apiGroups":["core.gardener.cloud"],"resources":["cloudprofiles","namespacedcloudprofiles"]},{"verbs":["get","patch"],"apiGroups":["admissionregistration.k8s.io"],"resources":["validatingwebhookconfigurations"],"resourceNames":["fairlead-webhook"]}]`},
				"Role fairlead-webhook":        {`"fairlead-webhook-certificate"`},
				"ValidatingWebhookConfiguration fairlead-webhook": {
					`"rules":[{"operations":["CREATE","UPDATE"],"apiGroups":["core.gardener.cloud"],"apiVersions":["v1beta1"],"resources":["shoots"],"scope":"Namespaced"}]`,
					`"path":"/validate-shoots"`, `"namespace":"elsewhere"`, `"failurePolicy":"Fail"`, `deletionTimestamp`,
				},
			},
			lacks: []string{"MutatingWebhookConfiguration", "CustomResourceDefinition", "Deployment fairlead-operator", "ClusterRole fairlead-operator", "ValidatingWebhookConfiguration fairlead-webhook: pods", "ClusterRole fairlead-webhook: nodes"},
		},
		{
			name: "in a garden cluster with a capability of its own", in: "fairlead-system", vals: "{webhook: {garden: true, virtualizationCapability: machineHostType=metal}}",
			has: map[string][]string{"Deployment fairlead-webhook": {`"--garden","--mutating-configuration=","--virtualization-capability=machineHostType=metal"`}},
		},
		{
			name: "in a garden cluster that goes by no capability", in: "fairlead-system", vals: "{webhook: {garden: true, virtualizationCapability: ''}}",
			has: map[string][]string{"Deployment fairlead-webhook": {`"--virtualization-capability="`}},
		},
		{
			name: "in a garden cluster with certificates of others", in: "fairlead-system", vals: "{webhook: {garden: true, certificates: {secret: serving}}}",
			has: map[string][]string{
				"Deployment fairlead-webhook":  {`"--garden"`, `"--cert-dir=/certificates"`},
				"ClusterRole fairlead-webhook": {`"rules":[{"verbs":["get"],"apiGroups":["core.gardener.cloud"],"resources":["cloudprofiles","namespacedcloudprofiles"]}]`},
			},
			lacks: []string{"Role fairlead-webhook", "RoleBinding fairlead-webhook"},
		},
		{
			name: "what runs for a virtual garden", in: "garden", vals: "{webhook: {garden: true, part: runtime, url: 'https://fairlead.garden:8443', kubeconfigSecret: access, virtualNamespace: fairlead, serviceAnnotations: {a: b}}, monitoring: {podMonitor: {enabled: true}}}",
			has: map[string][]string{
				"Deployment fairlead-webhook": {
					`"args":["webhook","--namespace=fairlead","--kubeconfig=/garden/kubeconfig","--serve-as=fairlead.garden","--garden","--mutating-configuration="]`,
					`"volumeMounts":[{"name":"garden","readOnly":true,"mountPath":"/garden"}]`, `"volumes":[{"name":"garden","secret":{"secretName":"access"}}]`, `"namespace":"garden"`,
				},
				"ServiceAccount fairlead-webhook":      {`"automountServiceAccountToken":false`},
				"Service fairlead-webhook":             {`"annotations":{"a":"b"}`},
				"PodDisruptionBudget fairlead-webhook": {`"minAvailable":1`},
				"PodMonitor fairlead-webhook":          {`"namespace":"garden"`},
			},
			lacks: []string{"ClusterRole", "Role", "ValidatingWebhookConfiguration", "CustomResourceDefinition"},
		},
		{
			name: "what a virtual garden has", in: "fairlead", vals: "{webhook: {garden: true, part: virtual, url: 'https://fairlead.garden:8443/'}, monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}}",
			has: map[string][]string{
				"ValidatingWebhookConfiguration fairlead-webhook": {`"clientConfig":{"url":"https://fairlead.garden:8443/validate-shoots"}`},
				"ServiceAccount fairlead-webhook":                 {`"namespace":"fairlead"`},
				"ClusterRoleBinding fairlead-webhook":             {`"subjects":[{"kind":"ServiceAccount","name":"fairlead-webhook","namespace":"fairlead"}]`},
				"ClusterRole fairlead-webhook":                    {`"cloudprofiles"`, `"validatingwebhookconfigurations"`},
				"Role fairlead-webhook":                           {`"fairlead-webhook-certificate"`, `"namespace":"fairlead"`},
				"RoleBinding fairlead-webhook":                    {`"namespace":"fairlead"`},
			},
			lacks: []string{"Deployment", "Service fairlead", "PodDisruptionBudget", "PodMonitor", "ServiceMonitor", "NetworkPolicy", "ServiceAccount fairlead-webhook: automount", "CustomResourceDefinition"},
		},
		{
			name: "an address of its own", in: "fairlead-system", vals: "{webhook: {url: 'https://admission.example'}}",
			has: map[string][]string{
				"Deployment fairlead-webhook":                     {`"args":["webhook","--serve-as=admission.example"]`},
				"MutatingWebhookConfiguration fairlead-webhook":   {`"url":"https://admission.example/mutate-pods"`},
				"ValidatingWebhookConfiguration fairlead-webhook": {`"url":"https://admission.example/validate-pods"`, `"url":"https://admission.example/validate-policies"`},
			},
			lacks: []string{`ValidatingWebhookConfiguration: "service"`},
		},
		{
			name: "another tag", in: "fairlead-system", vals: "{image: {tag: v1}}",
			has: map[string][]string{"Deployment fairlead-webhook": {`"image":"fairlead:v1"`}},
		},
		{
			name: "nothing else is exempt", in: "fairlead-system", vals: "{webhook: {exemptNamespaces: [fairlead-system]}}",
			has: map[string][]string{
				"Deployment fairlead-webhook":                   {`"args":["webhook","--exempt=fairlead-system"]`},
				"MutatingWebhookConfiguration fairlead-webhook": {`"values":["fairlead-system"]`},
			},
		},
		{
			// A policy for all namespaces must not hold for what brings its class to nodes.
			name: "pods of installers are exempt", in: "fairlead-system", vals: "{operator: {enabled: true}}",
			has: map[string][]string{
				"Deployment fairlead-webhook":                     {`"args":["webhook","--exempt=kube-system","--exempt=fairlead-nodes"]`},
				"MutatingWebhookConfiguration fairlead-webhook":   {`"values":["kube-system","fairlead-nodes","fairlead-system"]`},
				"ValidatingWebhookConfiguration fairlead-webhook": {`"values":["kube-system","fairlead-nodes","fairlead-system"]`},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := everything(t, tt.in, tt.vals)
			for key, texts := range tt.has {
				for _, text := range texts {
					if !strings.Contains(all[key], text) {
						t.Errorf("%s has no %s: %s", key, text, all[key])
					}
				}
			}
			for _, lack := range tt.lacks {
				key, text, part := strings.Cut(lack, ": ")
				for have, object := range all {
					if strings.HasPrefix(have, key) && (!part || strings.Contains(object, text)) {
						t.Errorf("there is %s (%s)", have, lack)
					}
				}
			}
		})
	}
}

// The flags in arguments are those of the program.
func TestFlagsExist(t *testing.T) {
	page, err := os.ReadFile(top + "/docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	deployment := everything(t, "elsewhere", allOn(t))["Deployment fairlead-webhook"]
	deployment += everything(t, "elsewhere", "{webhook: {garden: true, part: runtime, url: 'https://a', kubeconfigSecret: a}}")["Deployment fairlead-webhook"]
	flags := regexp.MustCompile(`"(--[a-z-]+)=`).FindAllStringSubmatch(deployment, -1)
	if len(flags) < 10 {
		t.Fatalf("flags are %v", flags)
	}
	for _, f := range flags {
		if !strings.Contains(string(page), f[1]+" ") && !strings.Contains(string(page), f[1]+"`") {
			t.Errorf("docs/cli.md has no %s", f[1])
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	c := load(t)
	for _, tt := range []struct{ vals, says string }{
		{"{webhok: {}}", "webhok"},
		{"{webhook: {replica: 3}}", "replica"},
		{"{webhook: {replicas: 0}}", "replicas"},
		{"{webhook: {replicas: two}}", "replicas"},
		{"{webhook: {exemptNamespaces: [Storage]}}", "exemptNamespaces"},
		{"{webhook: {extraArgs: [webhook]}}", "extraArgs"},
		{"{webhook: {goMemoryLimit: 200Mi}}", "goMemoryLimit"},
		{"{webhook: {resources: {limit: {}}}}", "limit"},
		{"{webhook: {certificates: {caBundle: '-----BEGIN'}}}", "caBundle"},
		{"{webhook: {clients: {names: [a]}}}", "configMap"},
		{"{webhook: {networkPolicy: {enabled: true}}}", "apiServers"},
		{"{webhook: {networkPolicy: {apiServers: [10.0.0.1]}}}", "apiServers"},
		{"{webhook: {podDisruptionBudget: {minAvailable: all}}}", "minAvailable"},
		{"{webhook: {garden: 'yes'}}", "garden"},
		{"{webhook: {garden: true}, operator: {enabled: true}}", "/operator/enabled"},
		{"{webhook: {part: both}}", "part"},
		{"{webhook: {part: virtual, garden: true}}", "url"},
		{"{webhook: {part: virtual, url: 'https://a'}}", "garden"},
		{"{webhook: {part: runtime, garden: true, url: 'https://a'}}", "kubeconfigSecret"},
		{"{webhook: {part: virtual, garden: true, url: 'https://a', kubeconfigSecret: a}}", "kubeconfigSecret"},
		{"{webhook: {kubeconfigSecret: a}}", "kubeconfigSecret"},
		{"{webhook: {virtualNamespace: a}}", "virtualNamespace"},
		{"{webhook: {url: 'http://a'}}", "url"},
		{"{webhook: {garden: true, virtualizationCapability: nested}}", "virtualizationCapability"},
		{"{webhook: {url: 'https://a/b'}}", "url"},
		{"{operator: {types: []}}", "types"},
		{"{operator: {namespace: ''}}", "gardener"},
		{"{operator: {namespace: '', gardener: false}}", "gardener"},
		{"{operator: {namespace: A}}", "namespace"},
		{"{operator: {payloads: [{image: gvisor}]}}", "payloads"},
		{"{operator: {payloads: [{image: 'a@sha256:" + digest + "', manifest: {version: a}}]}}", "type"},
		{"{gardener: 1.149}", "gardener"},
		{"{image: {digest: latest}}", "digest"},
		{"{image: {repository: ''}}", "repository"},
		{"{image: {pullPolicy: Sometimes}}", "pullPolicy"},
		{"{monitoring: {podMonitor: {interval: 30}}}", "interval"},
		{"{monitoring: {podMonitor: {enabled: 'yes'}}}", "enabled"},
		{"{crds: {keep: true}}", "keep"},
	} {
		_, err := render(t.Context(), c, namespace, parse(t, tt.vals))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want it to be about %s", tt.vals, err, tt.says)
		}
	}
}

// Each value is described, and both files have the same ones.
func TestValuesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(folder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile(folder + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "", document.Content[0], parse(t, string(schema)))
}

func compare(t *testing.T, path string, vals *yamlnode.Node, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil {
		return // a map whose keys are the user's
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s: the schema lets unknown values pass", path)
	}
	missing := maps.Clone(properties)
	delete(missing, "global") // Helm's own
	for i := 0; i+1 < len(vals.Content); i += 2 {
		key, value := vals.Content[i], vals.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		property, _ := properties[key.Value].(map[string]any)
		if property == nil {
			t.Errorf("%s is not in the schema", name)
			continue
		}
		delete(missing, key.Value)
		group := value.Kind == yamlnode.MappingNode && property["properties"] != nil
		if !group && key.HeadComment == "" {
			t.Errorf("%s has no comment", name)
		}
		if group && !strings.HasSuffix(name, ".resources") {
			compare(t, name, value, property)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s.%s is in the schema alone", path, name)
	}
}

func TestRolesSayWhy(t *testing.T) {
	const head = "kind: ClusterRole\nmetadata: {name: a}\nrules:\n- apiGroups: [apps]\n  resources: [daemonsets]\n  resourceNames: [b]\n  verbs:\n"
	got, err := rolesIn("f", head+"  - get # to see it\n---\nkind: Role\nmetadata: {name: c, namespace: d}\nrules: []\n")
	if err != nil || len(got) != 2 || len(got[0].grants) != 1 || got[0].grants[0].why != "to see it" || got[1].namespace != "d" {
		t.Fatalf("%+v %v", got, err)
	}
	if what := got[0].grants[0].what(); what != "`daemonsets.apps` named `b`" {
		t.Error(what)
	}
	if what := (grant{groups: []string{"apps"}, resources: []string{"daemonsets/status"}}).what(); what != "`daemonsets.apps/status`" {
		t.Error(what)
	}
	if what := (grant{groups: []string{"apps"}, resources: []string{"daemonsets/status"}}).what(); what != "`daemonsets.apps/status`" {
		t.Error(what)
	}
	if _, err := rolesIn("f", head+"  - get # to see it\n  - list\n"); err == nil || !strings.Contains(err.Error(), "verb list of daemonsets") {
		t.Errorf("a verb without a reason: %v", err)
	}
	for _, rule := range []string{
		"- {apiGroups: ['*'], resources: [pods], verbs: [get]}", "- {apiGroups: [''], resources: ['*'], verbs: [get]}",
		"- {apiGroups: [''], resources: [pods], verbs: ['*']}", "- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [get]}",
	} {
		if _, err := rolesIn("f", "kind: Role\nmetadata: {name: c}\nrules:\n"+rule+"\n"); err == nil || !strings.Contains(err.Error(), "no account is to have") {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestPack(t *testing.T) {
	into := t.TempDir()
	if err := pack(folder, "v7", into); err != nil {
		t.Fatal(err)
	}
	archives, err := filepath.Glob(into + "/fairlead-*.tgz")
	if err != nil || len(archives) != 1 {
		t.Fatalf("%v %v", archives, err)
	}
	c, err := loader.LoadFile(archives[0])
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t.Context(), c, namespace, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(rendered["templates/webhook/20-deployment.yaml"], "image: fairlead:v7") || !strings.Contains(rendered["templates/crds.yaml"], "runtimeclasspolicies.fairlead.run") {
		t.Errorf("the packed chart renders %v", slices.Sorted(maps.Keys(rendered)))
	}
}
