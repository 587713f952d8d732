package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/template"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/options"
	"fairlead.run/test/apiserver"
)

const (
	chartFolder = "../../deploy/charts/fairlead"
	operatorsIn = "fairlead-nodes"
)

// right is a verb on a resource, in one namespace or in all.
type right struct {
	verb, resource, namespace string
	named                     []string
}

func (r right) allows(c apiserver.Call) bool {
	return r.verb == c.Verb && r.resource == resourceOf(c) && (r.namespace == "" || r.namespace == c.Namespace) && (len(r.named) == 0 || slices.Contains(r.named, c.Name))
}

func resourceOf(c apiserver.Call) string { return path.Join(c.Group, c.Resource, c.Subresource) }

// accounts are what the chart has of accounts and their roles, in a cluster of the
// operator's own or in a seed, with some values changed.
func accounts(t *testing.T, inGardener bool, change map[string]any) [][]byte {
	t.Helper()
	var values map[string]any
	text, err := os.ReadFile(chartFolder + "/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	of := values["operator"].(map[string]any)
	of["enabled"], of["gardener"] = true, inGardener
	maps.Copy(values, change)
	roles, err := template.ParseFiles(chartFolder + "/templates/operator/10-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rendered bytes.Buffer
	if err := roles.Execute(&rendered, map[string]any{"Values": values}); err != nil {
		t.Fatal(err)
	}
	return bytes.Split(rendered.Bytes(), []byte("\n---\n"))
}

// Payloads are pulled by pods of the installer, with what the chart knows of registries.
func TestInstallersPullByTheChartsSecrets(t *testing.T) {
	with := map[string][]corev1.LocalObjectReference{}
	for _, document := range accounts(t, false, map[string]any{"imagePullSecrets": []string{"registry"}}) {
		var account corev1.ServiceAccount
		if err := yaml.Unmarshal(document, &account); err != nil {
			t.Fatal(err)
		}
		if account.Kind == "ServiceAccount" {
			with[account.Namespace+"/"+account.Name] = account.ImagePullSecrets
		}
	}
	for _, name := range []string{"fairlead-operator", "fairlead-installer"} {
		if all := with[operatorsIn+"/"+name]; len(all) != 1 || all[0].Name != "registry" {
			t.Errorf("%s has %v", name, all)
		}
	}
}

// granted are the rights that the chart gives the operator.
func granted(t *testing.T, inGardener bool) []right {
	t.Helper()
	var out []right
	for _, document := range accounts(t, inGardener, nil) {
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out = append(out, right{verb, path.Join(rule.APIGroups[0], resource), role.Namespace, rule.ResourceNames})
				}
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("the chart grants nothing")
	}
	return out
}

// The chart grants rights by names that have a type in full, so that none may be so long
// that the operator cuts it short.
func TestNamesOfTypesAreWhole(t *testing.T) {
	name := func(letters int) (string, bool) {
		typ := strings.Repeat("a", letters)
		made := names.Object("extension-runtime", typ, "fairlead")
		return made, made == "extension-runtime-"+typ+"-fairlead"
	}
	if made, whole := name(payload.MaxType); !whole {
		t.Errorf("the longest is called %s", made)
	}
	if made, whole := name(payload.MaxType + 1); whole {
		t.Errorf("a longer one could be had: %s", made)
	}
	var schema struct {
		Properties struct {
			Operator struct {
				Properties struct {
					Types struct {
						Items struct{ MaxLength int }
					}
					Payloads struct {
						Items struct {
							Properties struct {
								Manifest struct {
									Properties struct {
										Type struct{ MaxLength int }
									}
								}
							}
						}
					}
				}
			}
		}
	}
	text, err := os.ReadFile(chartFolder + "/values.schema.json")
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	of := schema.Properties.Operator.Properties
	if a, b := of.Types.Items.MaxLength, of.Payloads.Items.Properties.Manifest.Properties.Type.MaxLength; a != payload.MaxType || b != payload.MaxType {
		t.Errorf("the chart takes types of %d and payloads of %d letters, and not of %d", a, b, payload.MaxType)
	}
}

// kinds are what the API server of these tests has.
var kinds = map[string]apiserver.Resource{}

func init() {
	for _, r := range []apiserver.Resource{
		{Path: "api/v1/nodes", Kind: "Node"},
		{Path: "api/v1/pods", Kind: "Pod", Namespaced: true},
		{Path: "api/v1/configmaps", Kind: "ConfigMap", Namespaced: true},
		{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true},
		{Path: "api/v1/events", Kind: "Event", Namespaced: true},
		{Path: "apis/events.k8s.io/v1/events", Kind: "Event", Namespaced: true},
		{Path: "apis/apps/v1/daemonsets", Kind: "DaemonSet", Namespaced: true},
		{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"},
		{Path: "apis/coordination.k8s.io/v1/leases", Kind: "Lease", Namespaced: true},
		{Path: "apis/fairlead.run/v1alpha1/workerpools", Kind: "WorkerPool"},
		{Path: "apis/fairlead.run/v1alpha1/runtimepayloads", Kind: "RuntimePayload"},
		{Path: "apis/extensions.gardener.cloud/v1alpha1/containerruntimes", Kind: "ContainerRuntime", Namespaced: true},
		{Path: "apis/extensions.gardener.cloud/v1alpha1/operatingsystemconfigs", Kind: "OperatingSystemConfig", Namespaced: true},
		{Path: "apis/extensions.gardener.cloud/v1alpha1/workers", Kind: "Worker", Namespaced: true},
		{Path: "apis/extensions.gardener.cloud/v1alpha1/clusters", Kind: "Cluster"},
		{Path: "apis/resources.gardener.cloud/v1alpha1/managedresources", Kind: "ManagedResource", Namespaced: true},
		{Path: "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
	} {
		kinds[r.Kind+" "+path.Dir(r.Path)] = r
		kinds[r.Kind] = r
	}
}

// discovered answers what an API server is asked about itself.
func discovered(_ apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
	at := strings.Trim(r.URL.Path, "/")
	groups, resources := map[string]string{}, []metav1.APIResource{}
	for _, one := range kinds {
		version := path.Dir(one.Path)
		if words := strings.Split(version, "/"); len(words) == 3 {
			groups[words[1]] = words[2]
		}
		name := path.Base(one.Path)
		if version == at && !slices.ContainsFunc(resources, func(r metav1.APIResource) bool { return r.Name == name }) {
			resources = append(resources, metav1.APIResource{Name: name, Kind: one.Kind, Namespaced: one.Namespaced, Verbs: metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"}})
		}
	}
	var out any
	switch {
	case at == "api":
		out = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case at == "version":
		out = version.Info{GitVersion: "v1.36.0"}
	case at == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + groups[name], Version: groups[name]}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
		out = list
	case len(resources) > 0:
		_, version, _ := strings.Cut(at, "/")
		out = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: resources}
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
	return true
}

// probes counts the addresses of probes.
var probes atomic.Int32

// bound is an operator that has the rights of the chart and no others.
type bound struct {
	*apiserver.Server
	t      *testing.T
	rights []right
	health string    // address of the probes
	asked  string    // address of the webhook
	end    func()    // tells it to end
	ended  time.Time // when it was told

	mu      sync.Mutex
	refused []string
}

// startBound starts one; first is done to its API server before.
func startBound(t *testing.T, inGardener bool, first ...func(*bound)) *bound {
	var all []apiserver.Resource
	for key, r := range kinds {
		if strings.Contains(key, " ") {
			all = append(all, r)
		}
	}
	b := &bound{Server: apiserver.New(t, all...), t: t, rights: granted(t, inGardener)}
	b.Intercept(discovered)
	b.FailWith(func(c apiserver.Call) int {
		if slices.ContainsFunc(b.rights, func(r right) bool { return r.allows(c) }) {
			return 0
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refused = append(b.refused, fmt.Sprintf("%+v", c))
		return http.StatusForbidden
	})
	for _, do := range first {
		do(b)
	}
	// An address that no other test has: the manager cannot say which port it took.
	host := fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>8&0x7f, os.Getpid()&0xff, 1+probes.Add(1))
	b.health, b.asked = host+":8081", host+":9443"
	config := b.Config()
	config.ContentType = "application/json"
	ctx, end := context.WithCancel(context.Background())
	b.end = end
	ended := make(chan error, 1)
	o := options.Options{Namespace: operatorsIn, Account: "fairlead-installer", Gardener: inGardener, Webhook: b.asked, Health: b.health, Metrics: "0", Elect: true}
	go func() { ended <- Run(ctx, config, o, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// until waits for something, and says what is missing if it never comes.
func (b *bound) until(what string, is func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.t.Fatalf("%s: not within a minute; refused was %v; there are %v", what, b.refused, b.All(kinds["ContainerRuntime"]))
		}
	}
}

// read decodes an object; it is false if there is none.
func (b *bound) read(kind, key string, into any) bool {
	had := b.Get(kinds[kind], key)
	if had == nil {
		return false
	}
	text, err := json.Marshal(had)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return true
}

// state is that of a ContainerRuntime.
func (b *bound) state(key string) gardener.LastOperation {
	var c gardener.ContainerRuntime
	if !b.read("ContainerRuntime", key, &c) || c.Status.LastOperation == nil {
		return gardener.LastOperation{}
	}
	return *c.Status.LastOperation
}

// unneeded are rights that were not asked for. A cache may be filled by a watch alone.
func (b *bound) unneeded(but ...string) []string {
	calls := b.Calls()
	var out []string
	for _, r := range b.rights {
		used := slices.ContainsFunc(calls, func(c apiserver.Call) bool {
			list := r
			list.verb = "watch"
			return r.allows(c) || r.verb == "list" && list.allows(c)
		})
		if name := r.verb + " " + r.resource; !used && !slices.Contains(but, name) {
			out = append(out, name)
		}
	}
	return out
}

func (b *bound) judge(but ...string) {
	b.t.Helper()
	// That it leads is told in the background.
	b.until("events", func() bool { return len(b.All(kinds["Event api/v1"])) > 0 })
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.refused) > 0 {
		b.t.Errorf("the chart does not allow: %v", b.refused)
	}
	if out := b.unneeded(but...); len(out) > 0 {
		b.t.Errorf("the chart allows what nothing needs: %v", out)
	}
}

// In a seed the operator needs what the chart gives it there, and nothing else.
func TestRightsInASeed(t *testing.T) {
	b := startBound(t, true, func(b *bound) {
		b.Put(kinds["MutatingWebhookConfiguration"], fromChart(t, "30-configurations.yaml"))
		// One of which nobody can make anything is written again.
		b.Put(kinds["Secret"], &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-operator-certificate", Namespace: operatorsIn}, Data: map[string][]byte{"tls.crt": []byte("x")}})
	})
	b.Put(kinds["RuntimePayload"], aPayload("gvisor", "1", "runsc"))
	b.Put(kinds["OperatingSystemConfig"], config(t, "now", "reconcile", "a").Object)
	key := shootNamespace + "/gvisor-a"
	c := inShoot("a")
	b.Put(kinds["ContainerRuntime"], c)
	b.until("entries", func() bool { return b.state(key).State == gardener.StateSucceeded })
	if files, tables := has(b.ask(config(t, "next", "reconcile", "a"))); len(files) == 0 || len(tables) == 0 {
		t.Error("an OperatingSystemConfig is stored without entries")
	}
	// Another overhead is written into the Secret that is there.
	b.read("ContainerRuntime", key, c)
	c.Generation, c.Spec.ProviderConfig = 1, settings(`{"overhead":{"memory":"64Mi"}}`)
	b.Put(kinds["ContainerRuntime"], c)
	b.until("another overhead", func() bool {
		var secret corev1.Secret
		return b.read("Secret", shootNamespace+"/extension-runtime-gvisor-fairlead", &secret) && bytes.Contains(secret.Data["runtimeclass-gvisor.yaml"], []byte("64Mi"))
	})
	// The control plane moves to another seed, and comes back.
	for _, order := range []string{gardener.OrderMigrate, gardener.OrderRestore} {
		b.until("nothing at work", func() bool { return b.state(key).State == gardener.StateSucceeded })
		moving := &gardener.ContainerRuntime{}
		b.read("ContainerRuntime", key, moving)
		moving.Annotations = map[string]string{gardener.AnnotationOperation: order}
		b.Put(kinds["ContainerRuntime"], moving)
		b.until(order, func() bool {
			last := b.state(key)
			return strings.EqualFold(string(last.Type), order) && last.State == gardener.StateSucceeded
		})
	}
	b.until("the order goes", func() bool {
		var now gardener.ContainerRuntime
		return b.read("ContainerRuntime", key, &now) && now.Annotations[gardener.AnnotationOperation] == ""
	})
	b.Delete(kinds["ContainerRuntime"], key)
	b.until("the end", func() bool {
		return len(b.All(kinds["ContainerRuntime"]))+len(b.All(kinds["ManagedResource"])) == 0 && len(b.All(kinds["Secret"])) == 1 // the certificate
	})
	b.judge("update coordination.k8s.io/leases") // it is renewed after two seconds
	// An API server that has not heard of its end is still answered.
	b.Put(kinds["ContainerRuntime"], inShoot("a"))
	b.until("entries again", func() bool { return b.state(key).State == gardener.StateSucceeded })
	b.ended = time.Now()
	b.end()
	time.Sleep(500 * time.Millisecond)
	if late := b.ask(config(t, "next", "reconcile", "a")); late == nil {
		t.Log("this machine was too slow to ask one that ends")
	} else if files, _ := has(late); len(files) == 0 {
		t.Error("one that ends puts no entries in any more")
	}
}

// fromChart is an object of a template of the operator's in a seed.
func fromChart(t *testing.T, file string) map[string]any {
	t.Helper()
	made, err := template.ParseFiles(chartFolder + "/templates/operator/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var rendered bytes.Buffer
	if err := made.Execute(&rendered, map[string]any{"Values": map[string]any{"operator": map[string]any{"enabled": true, "gardener": true, "namespace": operatorsIn}}}); err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := yaml.Unmarshal(rendered.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// ask is what the operator makes of an object before it is stored, asked as an API
// server does that has read the configuration; nil if its time to answer was over before.
func (b *bound) ask(about *unstructured.Unstructured) *unstructured.Unstructured {
	b.t.Helper()
	var as admissionregistrationv1.MutatingWebhookConfiguration
	b.until("an authority", func() bool {
		return b.read("MutatingWebhookConfiguration", "fairlead-operator", &as) && len(as.Webhooks[0].ClientConfig.CABundle) > 0
	})
	service, pool := as.Webhooks[0].ClientConfig.Service, x509.NewCertPool()
	pool.AppendCertsFromPEM(as.Webhooks[0].ClientConfig.CABundle)
	text, err := json.Marshal(about.Object)
	if err != nil {
		b.t.Fatal(err)
	}
	r := &admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &admissionv1.AdmissionRequest{
		UID: "x", Operation: admissionv1.Create, Namespace: about.GetNamespace(), Name: about.GetName(), Object: runtime.RawExtension{Raw: text},
	}}
	question, err := json.Marshal(r)
	if err != nil {
		b.t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: service.Name + "." + service.Namespace + ".svc"}}}
	defer c.CloseIdleConnections()
	var got admissionv1.AdmissionReview
	b.until("an answer", func() bool {
		answer, err := c.Post("https://"+b.asked+*service.Path, "application/json", bytes.NewReader(question))
		if err != nil && !b.ended.IsZero() && time.Since(b.ended) < drain {
			b.t.Fatalf("one that ends does not answer: %v", err)
		}
		if err != nil {
			return !b.ended.IsZero()
		}
		defer func() { _ = answer.Body.Close() }()
		return json.NewDecoder(answer.Body).Decode(&got) == nil && got.Response != nil
	})
	if got.Response == nil {
		return nil
	}
	if !got.Response.Allowed || got.Response.UID != "x" {
		b.t.Fatalf("%+v", got.Response)
	}
	if len(got.Response.Patch) == 0 {
		return about
	}
	steps, err := jsonpatch.DecodePatch(got.Response.Patch)
	if err == nil {
		text, err = steps.Apply(text)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return of(b.t, string(text))
}

// kubelet stands for the pods of the DaemonSets on a node.
func (b *bound) kubelet(node string) {
	var n corev1.Node
	if !b.read("Node", node, &n) {
		return
	}
	for key := range b.All(kinds["DaemonSet"]) {
		var ds appsv1.DaemonSet
		if !b.read("DaemonSet", key, &ds) {
			continue
		}
		had := b.Get(kinds["Pod"], key)
		switch wants := fits(ds.Spec.Template.Spec.NodeSelector, n.Labels); {
		case had == nil && wants:
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: ds.Name, Namespace: ds.Namespace, Labels: ds.Spec.Template.Labels, Annotations: ds.Spec.Template.Annotations}}
			p.Spec.NodeName = node
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			b.Put(kinds["Pod"], p)
		case had != nil && !wants:
			b.Delete(kinds["Pod"], key)
		}
	}
}

// In a cluster of its own it needs what the chart gives it, and nothing else.
func TestRightsOnNodes(t *testing.T) {
	b := startBound(t, false)
	put := func(version string, handlers ...string) {
		p := aPayload("gvisor", version, handlers...)
		p.Spec.Image = strings.Replace(p.Spec.Image, "sha256:ab", "sha256:a"+version, 1)
		p.Generation = int64(version[0])
		b.Put(kinds["RuntimePayload"], p)
	}
	put("1", "runsc")
	b.Put(kinds["Node"], &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"group": "a"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	pool := func(memory string, generation int64) {
		p := aPool("a", "gvisor")
		b.read("WorkerPool", "a", p)
		p.Spec.CRI.ContainerRuntimes[0].ProviderConfig, p.Generation = settings(`{"overhead":{"memory":"`+memory+`"}}`), generation
		b.Put(kinds["WorkerPool"], p)
	}
	pool("48Mi", 1)
	key := operatorsIn + "/gvisor-a"
	done := func(says string) func() bool {
		return func() bool {
			b.kubelet("n")
			last := b.state(key)
			return last.State == gardener.StateSucceeded && strings.Contains(last.Description, says)
		}
	}
	b.until("the first release", done("gvisor 1 was verified on 1 of 1 nodes"))
	put("2", "runsc")
	b.until("the second", done("gvisor 2 was verified on 1 of 1 nodes"))
	pool("64Mi", 2)
	b.until("another overhead", func() bool {
		text, _ := json.Marshal(b.Get(kinds["RuntimeClass"], "gvisor"))
		return bytes.Contains(text, []byte("64Mi"))
	})
	b.until("it is told of", done("gvisor 2"))
	b.Delete(kinds["WorkerPool"], "a")
	b.until("the end", func() bool {
		b.kubelet("n")
		return len(b.All(kinds["WorkerPool"]))+len(b.All(kinds["ContainerRuntime"]))+len(b.All(kinds["RuntimeClass"])) == 0
	})
	b.judge("update coordination.k8s.io/leases")
}

// Pods of the installer are free of AppArmor by what the API server knows of it.
func TestAppArmorByVersion(t *testing.T) {
	for at, want := range map[string]string{"v1.29.14": "unconfined", "v1.30.0-gke.100": ""} {
		t.Run(at, func(t *testing.T) {
			b := startBound(t, false, func(b *bound) {
				b.Intercept(func(c apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != "/version" {
						return discovered(c, w, r)
					}
					_ = json.NewEncoder(w).Encode(version.Info{GitVersion: at})
					return true
				})
			})
			b.Put(kinds["RuntimePayload"], aPayload("gvisor", "1", "runsc"))
			b.Put(kinds["WorkerPool"], aPool("a", "gvisor"))
			var ds appsv1.DaemonSet
			b.until("a DaemonSet", func() bool { return b.read("DaemonSet", operatorsIn+"/fairlead-gvisor-a", &ds) })
			got := ds.Spec.Template.Annotations["container.apparmor.security.beta.kubernetes.io/install"]
			if field := ds.Spec.Template.Spec.Containers[0].SecurityContext.AppArmorProfile; got != want || (field == nil) != (want != "") {
				t.Errorf("annotation %q, field %v", got, field)
			}
		})
	}
}
