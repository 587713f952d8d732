package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	corev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	yamlnode "go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

const gardenerFolder = top + "/deploy/gardener"

// inGardener reads the documents of a file strictly as Gardener's types.
func inGardener(t *testing.T, file string, into ...any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(gardenerFolder, file))
	if err != nil {
		t.Fatal(err)
	}
	decoder := yamlnode.NewDecoder(strings.NewReader(string(text)))
	for _, object := range into {
		var document yamlnode.Node
		if err := decoder.Decode(&document); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		one, err := yamlnode.Marshal(&document)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(one, object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	var more yamlnode.Node
	if decoder.Decode(&more) == nil {
		t.Errorf("%s has more documents than %d", file, len(into))
	}
}

// Both ways to register the operator are Gardener's types, and say the same.
func TestRegistration(t *testing.T) {
	var deployment corev1.ControllerDeployment
	var registration corev1beta1.ControllerRegistration
	var extension operatorv1alpha1.Extension
	inGardener(t, "controllerregistration.yaml", &deployment, &registration)
	inGardener(t, "extension.yaml", &extension)
	if deployment.APIVersion != "core.gardener.cloud/v1" || deployment.Kind != "ControllerDeployment" || registration.APIVersion != "core.gardener.cloud/v1beta1" || registration.Kind != "ControllerRegistration" || extension.APIVersion != "operator.gardener.cloud/v1alpha1" || extension.Kind != "Extension" {
		t.Errorf("%v, %v and %v", deployment.TypeMeta, registration.TypeMeta, extension.TypeMeta)
	}
	if refs := registration.Spec.Deployment.DeploymentRefs; len(refs) != 1 || refs[0].Name != deployment.Name {
		t.Errorf("the registration names %v and not %s", refs, deployment.Name)
	}
	e := extension.Spec.Deployment.ExtensionDeployment
	if e == nil || e.Helm == nil || !reflect.DeepEqual(e.Helm.OCIRepository, deployment.Helm.OCIRepository) || !reflect.DeepEqual(e.Policy, registration.Spec.Deployment.Policy) ||
		!reflect.DeepEqual(e.InjectGardenKubeconfig, deployment.InjectGardenKubeconfig) || !reflect.DeepEqual(extension.Spec.Resources, registration.Spec.Resources) {
		t.Errorf("%+v and %+v with %+v do not say the same", extension.Spec, deployment, registration.Spec)
	}
	if a, b := parse(t, string(e.Values.Raw)), parse(t, string(deployment.Helm.Values.Raw)); !reflect.DeepEqual(a, b) {
		t.Errorf("values are %v and %v", a, b)
	}
	var types []any
	alias := false
	for _, r := range registration.Spec.Resources {
		if r.Kind != "ContainerRuntime" || r.Primary != nil {
			t.Errorf("%+v", r)
		}
		if r.Type == "kata" { // what it makes has the name of kata-containers
			alias = true
			continue
		}
		types = append(types, r.Type)
	}
	if !alias {
		t.Error("nobody acts on a ContainerRuntime of type kata")
	}
	if rights := parse(t, string(deployment.Helm.Values.Raw))["operator"].(map[string]any)["types"]; !reflect.DeepEqual(types, rights) {
		t.Errorf("it is registered for %v and has rights for %v", types, rights)
	}
}

// told is what a gardenlet of 1.149.3 adds to the values of every chart.
const told = `
gardener:
  version: v1.149.3
  garden: {clusterIdentity: landscape}
  gardenlet: {featureGates: {SomeGate: true}}
  seed:
    {name: local, clusterIdentity: seed, annotations: null, labels: {a: b}, provider: aws, region: eu, volumeProvider: "", volumeProviders: null, ingressDomain: ingress.example, protected: false, visible: true,
    taints: null, networks: {pods: 192.0.2.0/24}, blockCIDRs: null, spec: {provider: {type: aws}}}
`

const payloadValue = `
operator:
  payloads:
  - image: registry.example/project/gvisor@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    manifest: {apiVersion: payload.fairlead.run/v1alpha1, kind: RuntimePayload, type: gvisor, version: "1", os: linux, architectures: [amd64]}
`

// What a gardenlet makes of the chart is the operator in the namespace of the
// installation, with the rights for OperatingSystemConfigs, and nothing that runs on
// nodes.
func TestChartInSeed(t *testing.T) {
	var deployment corev1.ControllerDeployment
	inGardener(t, "controllerregistration.yaml", &deployment, &corev1beta1.ControllerRegistration{})
	vals := parse(t, string(deployment.Helm.Values.Raw))
	for _, more := range []string{told, payloadValue} {
		vals = loader.MergeMaps(vals, parse(t, more))
	}
	text, err := json.Marshal(vals)
	if err != nil {
		t.Fatal(err)
	}
	const in = "extension-fairlead-x7k2p"
	all := everything(t, in, string(text))
	for key, want := range map[string][]string{
		"Deployment fairlead-operator":                          {`"namespace":"` + in + `"`, `"args":["--namespace=` + in + `","--gardener"]`, `"priorityClassName":"gardener-system-900"`, `"networking.gardener.cloud/to-runtime-apiserver":"allowed"`, `"image":"registry.example/project/fairlead:`},
		"ClusterRole fairlead-operator":                         {`"operatingsystemconfigs"`, `"extension-runtime-gvisor-fairlead","extension-runtime-kata-containers-fairlead"`},
		"Service fairlead-operator-webhook":                     {`"namespace":"` + in + `"`, `"networking.resources.gardener.cloud/from-world-to-ports":"[{\"protocol\":\"TCP\",\"port\":9443}]"`},
		"MutatingWebhookConfiguration fairlead-operator":        {`"namespace":"` + in + `","name":"fairlead-operator-webhook"`, `"failurePolicy":"Ignore"`, "system:serviceaccount:" + in + ":fairlead-operator"},
		"NetworkPolicy fairlead-operator":                       {`"port":"reviews"`},
		"ClusterRoleBinding fairlead-operator":                  {`"namespace":"` + in + `"`},
		"RoleBinding fairlead-operator":                         {`"namespace":"` + in + `"`},
		"RuntimePayload gvisor":                                 {`"type":"gvisor"`, `"image":"registry.example/project/gvisor@sha256:`},
		"CustomResourceDefinition runtimepayloads.fairlead.run": nil,
	} {
		for _, text := range append(want, key[:1]) {
			if !strings.Contains(key+all[key], text) || all[key] == "" {
				t.Errorf("%s has no %s: %s", key, text, all[key])
			}
		}
	}
	for key := range maps.Keys(all) {
		for _, none := range []string{"Namespace", "DaemonSet", "ServiceAccount fairlead-installer", "NetworkPolicy fairlead-installer", "Deployment fairlead-webhook", "CustomResourceDefinition containerruntimes"} {
			if strings.HasPrefix(key, none) {
				t.Errorf("there is %s", key)
			}
		}
	}
}

// gardener-operator installs the same chart twice, with the same values and what it adds:
// the webhook where it runs itself, and what its API server has in the virtual garden.
func TestAdmission(t *testing.T) {
	var extension operatorv1alpha1.Extension
	inGardener(t, "extension.yaml", &extension)
	a := extension.Spec.Deployment.AdmissionDeployment
	if a == nil || !reflect.DeepEqual(a.RuntimeCluster, a.VirtualCluster) || !reflect.DeepEqual(a.RuntimeCluster.Helm, extension.Spec.Deployment.ExtensionDeployment.Helm) {
		t.Fatalf("%+v", a)
	}
	for _, c := range []struct {
		in, told string
		has      map[string][]string
		lacks    []string
	}{
		{
			in: "garden", told: "{gardener: {runtimeCluster: {priorityClassName: gardener-garden-system-400}, virtualCluster: {enabled: true, namespace: extension-fairlead}}}",
			has: map[string][]string{
				"Deployment fairlead-webhook": {
					`"args":["webhook","--namespace=extension-fairlead","--kubeconfig=$(GARDEN_KUBECONFIG)","--serve-as=fairlead-webhook.garden","--garden","--mutating-configuration="]`, `"priorityClassName":"gardener-garden-system-400"`,
					`"networking.resources.gardener.cloud/to-virtual-garden-kube-apiserver-tcp-443":"allowed"`,
				},
				"Service fairlead-webhook":        {`"networking.resources.gardener.cloud/from-all-webhook-targets-allowed-ports":"[{\"protocol\":\"TCP\",\"port\":9443}]"`, `"namespace":"garden"`},
				"ServiceAccount fairlead-webhook": {`"automountServiceAccountToken":false`},
			},
			lacks: []string{"ClusterRole", "Role", "ValidatingWebhookConfiguration", "Deployment fairlead-operator", "CustomResourceDefinition"},
		},
		{
			in: "extension-fairlead", told: "{gardener: {virtualCluster: {enabled: true, serviceAccount: {name: extension-admission-fairlead, namespace: kube-system}}}}",
			has: map[string][]string{
				"ValidatingWebhookConfiguration fairlead-webhook": {`"url":"https://fairlead-webhook.garden/validate-shoots"`},
				"ClusterRoleBinding fairlead-webhook":             {`"name":"extension-admission-fairlead","namespace":"kube-system"`},
				"RoleBinding fairlead-webhook":                    {`"name":"extension-admission-fairlead","namespace":"kube-system"`, `"namespace":"extension-fairlead"`},
				"ClusterRole fairlead-webhook":                    {`"cloudprofiles"`},
				"Role fairlead-webhook":                           {`"secrets"`},
			},
			lacks: []string{"Deployment", "Service", "CustomResourceDefinition", "PodDisruptionBudget"},
		},
	} {
		text, err := json.Marshal(loader.MergeMaps(parse(t, string(a.Values.Raw)), parse(t, c.told)))
		if err != nil {
			t.Fatal(err)
		}
		all := everything(t, c.in, string(text))
		for key, texts := range c.has {
			for _, text := range texts {
				if !strings.Contains(all[key], text) {
					t.Errorf("%s: %s has no %s: %s", c.in, key, text, all[key])
				}
			}
		}
		for key := range maps.Keys(all) {
			for _, lack := range c.lacks {
				if strings.HasPrefix(key, lack) && c.has[key] == nil {
					t.Errorf("%s: there is %s", c.in, key)
				}
			}
		}
	}
	// Without an address nobody would find it.
	if _, err := render(t.Context(), load(t), "garden", parse(t, "{webhook: {garden: true}, gardener: {virtualCluster: {namespace: a}}}")); err == nil || !strings.Contains(err.Error(), "webhook.url") {
		t.Errorf("%v", err)
	}
}
