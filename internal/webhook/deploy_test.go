package webhook_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/cli"
	"fairlead.run/internal/webhook"
	"fairlead.run/test/apiserver"
)

// manifests are the objects in deploy/webhook, by kind and name, read strictly.
func manifests(t *testing.T) map[string]any { return manifestsIn(t, "../../deploy/webhook") }

func manifestsIn(t *testing.T, folder string) map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%v %v", files, err)
	}
	out := map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var head metav1.PartialObjectMetadata
			if err := yaml.Unmarshal(document, &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			object := map[string]any{
				"v1 Namespace": &corev1.Namespace{}, "v1 ServiceAccount": &corev1.ServiceAccount{}, "v1 Service": &corev1.Service{},
				"apps/v1 Deployment": &appsv1.Deployment{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
				"rbac.authorization.k8s.io/v1 ClusterRole": &rbacv1.ClusterRole{}, "rbac.authorization.k8s.io/v1 ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
				"rbac.authorization.k8s.io/v1 Role": &rbacv1.Role{}, "rbac.authorization.k8s.io/v1 RoleBinding": &rbacv1.RoleBinding{},
				"networking.k8s.io/v1 NetworkPolicy":                             &networkingv1.NetworkPolicy{},
				"admissionregistration.k8s.io/v1 MutatingWebhookConfiguration":   &admissionregistrationv1.MutatingWebhookConfiguration{},
				"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration": &admissionregistrationv1.ValidatingWebhookConfiguration{},
			}[head.APIVersion+" "+head.Kind]
			if object == nil {
				t.Fatalf("%s: what is %s %s?", file, head.APIVersion, head.Kind)
			}
			if err := yaml.UnmarshalStrict(document, object); err != nil {
				t.Fatalf("%s: %s %s: %v", file, head.Kind, head.Name, err)
			}
			out[head.Kind] = object
		}
	}
	return out
}

func object[T any](t *testing.T, all map[string]any, kind string) T {
	t.Helper()
	o, ok := all[kind].(T)
	if !ok {
		t.Fatalf("no %s", kind)
	}
	return o
}

func TestDeployment(t *testing.T) {
	all := manifests(t)
	d, o := object[*appsv1.Deployment](t, all, "Deployment"), webhook.Defaults()
	pods := labels.Set(d.Spec.Template.Labels)
	selects := func(what string, s *metav1.LabelSelector) {
		if selector, err := metav1.LabelSelectorAsSelector(s); err != nil || selector.Empty() || !selector.Matches(pods) {
			t.Errorf("%s does not select the pods: %v %v", what, selector, err)
		}
	}
	selects("the deployment", d.Spec.Selector)
	budget := object[*policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget")
	selects("the budget", budget.Spec.Selector)
	selects("the network policy", &object[*networkingv1.NetworkPolicy](t, all, "NetworkPolicy").Spec.PodSelector)
	selects("the anti-affinity", d.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector)
	if *d.Spec.Replicas < 2 || budget.Spec.MinAvailable.IntValue() != 1 {
		t.Errorf("%d replicas, %v at least", *d.Spec.Replicas, budget.Spec.MinAvailable)
	}
	service := object[*corev1.Service](t, all, "Service")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(pods) || service.Name != o.Service || service.Namespace != o.Namespace || service.Spec.Ports[0].TargetPort.StrVal != "reviews" {
		t.Errorf("service: %+v", service.Spec)
	}
	c, spec := d.Spec.Template.Spec.Containers[0], d.Spec.Template.Spec
	if !*spec.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation || c.SecurityContext.Capabilities.Drop[0] != "ALL" {
		t.Errorf("security: %+v %+v", spec.SecurityContext, c.SecurityContext)
	}
	if c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || time.Duration(*spec.TerminationGracePeriodSeconds)*time.Second < o.Drain+15*time.Second {
		t.Errorf("probes or grace: %+v", c)
	}
	for i, want := range []string{o.Listen, o.Health} {
		if got := fmt.Sprintf(":%d", c.Ports[i].ContainerPort); got != want {
			t.Errorf("port %s, and the program listens at %s", got, want)
		}
	}
	command, args, err := cli.Command("test").Find(c.Args)
	if err != nil || command.Name() != "webhook" || command.ParseFlags(args) != nil {
		t.Errorf("arguments %v: %v", c.Args, err)
	}
	account := object[*corev1.ServiceAccount](t, all, "ServiceAccount")
	bound := object[*rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects[0]
	if spec.ServiceAccountName != account.Name || bound.Name != account.Name || bound.Namespace != account.Namespace {
		t.Errorf("account %s, bound %+v", spec.ServiceAccountName, bound)
	}
}

// entry is what both kinds of configuration have.
type entry struct {
	name     string
	client   admissionregistrationv1.WebhookClientConfig
	rules    []admissionregistrationv1.RuleWithOperations
	failure  admissionregistrationv1.FailurePolicyType
	selector *metav1.LabelSelector
	timeout  int32
}

func entries(t *testing.T, all map[string]any) []entry {
	var out []entry
	m := object[*admissionregistrationv1.MutatingWebhookConfiguration](t, all, "MutatingWebhookConfiguration")
	v := object[*admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration")
	if o := webhook.Defaults(); m.Name != o.Mutating || v.Name != o.Validating {
		t.Errorf("names %s, %s", m.Name, v.Name)
	}
	for _, w := range m.Webhooks {
		if *w.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy || *w.MatchPolicy != admissionregistrationv1.Equivalent || *w.SideEffects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s: %+v", w.Name, w)
		}
		out = append(out, entry{w.Name, w.ClientConfig, w.Rules, *w.FailurePolicy, w.NamespaceSelector, *w.TimeoutSeconds})
	}
	for _, w := range v.Webhooks {
		if *w.MatchPolicy != admissionregistrationv1.Equivalent || w.SideEffects == nil {
			t.Errorf("%s: %+v", w.Name, w)
		}
		out = append(out, entry{w.Name, w.ClientConfig, w.Rules, *w.FailurePolicy, w.NamespaceSelector, *w.TimeoutSeconds})
	}
	return out
}

// A dead webhook never holds up kube-system, itself, or the end of a pod.
func TestConfigurations(t *testing.T) {
	all := manifests(t)
	r := start(t, cluster(t), options())
	for _, e := range entries(t, all) {
		s := e.client.Service
		if s.Name != "fairlead-webhook" || s.Namespace != "fairlead-system" || e.timeout > 5 {
			t.Errorf("%s: %+v, timeout %d", e.name, s, e.timeout)
		}
		if code, text := r.send(*s.Path, jsonType, strings.NewReader("{}")); code != 400 {
			t.Errorf("%s: the program does not serve %s: %d %s", e.name, *s.Path, code, text)
		}
		for _, rule := range e.rules {
			ignored := e.failure == admissionregistrationv1.Ignore
			if rule.Scope == nil || slices.Contains(rule.Resources, "*") || slices.Contains(rule.Operations, admissionregistrationv1.Delete) && !ignored {
				t.Errorf("%s: %+v", e.name, rule)
			}
			if *rule.Scope == admissionregistrationv1.ClusterScope {
				continue
			}
			if ignored && slices.Equal(rule.Resources, []string{"containerruntimes"}) {
				continue // they are in the namespace of the operator, which may be this one
			}
			selector, err := metav1.LabelSelectorAsSelector(e.selector)
			if err != nil || e.selector == nil {
				t.Fatalf("%s: %v", e.name, err)
			}
			for namespace, asked := range map[string]bool{"kube-system": false, "fairlead-system": false, "fairlead-nodes": false, "default": true, "team": true} {
				if selector.Matches(labels.Set{corev1.LabelMetadataName: namespace}) != asked {
					t.Errorf("%s: namespace %s", e.name, namespace)
				}
			}
			creates := slices.Equal(rule.Resources, []string{"pods"}) && slices.Equal(rule.Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Create})
			if (e.failure == admissionregistrationv1.Fail) != creates {
				t.Errorf("%s: %s for %v of %v", e.name, e.failure, rule.Operations, rule.Resources)
			}
		}
	}
}

// permission is one verb for one kind of object, of one name or of all.
type permission struct{ verb, group, resource, name string }

func permissions(rules []rbacv1.PolicyRule) map[permission]bool {
	out := map[permission]bool{}
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range names {
						out[permission{verb, group, resource, name}] = true
					}
				}
			}
		}
	}
	return out
}

// What the roles allow is what the program asks for, in all that it does.
func TestRolesAreExact(t *testing.T) {
	all := manifests(t)
	granted := permissions(append(object[*rbacv1.ClusterRole](t, all, "ClusterRole").Rules, object[*rbacv1.Role](t, all, "Role").Rules...))
	api := cluster(t)
	api.FailWith(func(c apiserver.Call) int {
		if c.Verb == "watch" && c.Resource != "secrets" && api.Count(func(l apiserver.Call) bool { return l.Verb == "list" && l.Resource == c.Resource }) == 0 {
			return 400 // as one that streams no lists
		}
		return 0
	})
	first := start(t, api, options())
	request := creating(t, pod(of("not-there")))
	request.Namespace = "nor-this"
	first.ask("/mutate-pods", request)
	first.ask("/validate-workerpools", about(t, workerPoolKind, workerPool("a"), nil))
	asked := about(t, runtimeKind, &gardener.ContainerRuntime{}, nil)
	asked.Namespace = "team"
	first.ask("/validate-containerruntimes", asked)
	first.stop()
	other := options()
	other.ServeAs = []string{"127.0.0.1", "another.example"} // so that the certificate has to be another
	start(t, api, other)
	compareRoles(t, granted, api)
}

// compareRoles holds what is granted against what was asked for.
func compareRoles(t *testing.T, granted map[permission]bool, api *apiserver.Server) {
	t.Helper()
	used := map[permission]bool{}
	for _, c := range api.Calls() {
		if c.Resource == "" {
			continue // its version, which everybody may ask for
		}
		p := permission{c.Verb, c.Group, c.Resource, c.Name}
		if !granted[p] {
			p.name = ""
		}
		if !granted[p] {
			t.Errorf("not allowed: %+v", c)
		}
		if c.Resource == "secrets" && c.Namespace != "fairlead-system" {
			t.Errorf("a Secret elsewhere: %+v", c)
		}
		used[p] = true
	}
	for p := range granted {
		if !used[p] {
			t.Errorf("allowed and not needed: %+v", p)
		}
	}
}

// In a garden cluster it is asked about Shoots alone, and has the rights for that.
func TestGardenManifests(t *testing.T) {
	all := manifestsIn(t, "../../deploy/garden")
	if all["MutatingWebhookConfiguration"] != nil {
		t.Error("it changes objects")
	}
	spec := object[*appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
	command, args, err := cli.Command("test").Find(spec.Containers[0].Args)
	if err != nil || command.Name() != "webhook" || command.ParseFlags(args) != nil || command.Flag("garden").Value.String() != "true" || command.Flag("mutating-configuration").Value.String() != "" {
		t.Errorf("arguments %v: %v", spec.Containers[0].Args, err)
	}
	api, ask := garden(t)
	refused(t, "an image without it", ask(onProfile("CloudProfile", "without"), nil), "does not have it")
	refused(t, "a profile of the project", ask(onProfile("NamespacedCloudProfile", "merged"), nil), "")
	other := options()
	other.Garden, other.Mutating, other.ServeAs = true, "", []string{"127.0.0.1", "another.example"}
	r := start(t, api, other)
	granted := permissions(append(object[*rbacv1.ClusterRole](t, all, "ClusterRole").Rules, object[*rbacv1.Role](t, all, "Role").Rules...))
	compareRoles(t, granted, api)
	hooks := object[*admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration").Webhooks
	if len(hooks) != 1 || len(hooks[0].MatchConditions) != 2 {
		t.Fatalf("%+v", hooks)
	}
	if code, text := r.send(*hooks[0].ClientConfig.Service.Path, jsonType, strings.NewReader("{}")); code != 400 {
		t.Errorf("the program does not serve %s: %d %s", *hooks[0].ClientConfig.Service.Path, code, text)
	}
}
