package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/webhook"
	"fairlead.run/test/apiserver"
)

var (
	classes    = apiserver.Resource{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"}
	policies   = apiserver.Resource{Path: "apis/fairlead.run/v1alpha1/runtimeclasspolicies", Kind: "RuntimeClassPolicy"}
	namespaces = apiserver.Resource{Path: "api/v1/namespaces", Kind: "Namespace"}
	nodes      = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	pods       = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
	secrets    = apiserver.Resource{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true}
	mutating   = apiserver.Resource{Path: "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"}
	validating = apiserver.Resource{Path: "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"}
)

// cluster is an API server in memory with what every cluster of these tests has:
// three namespaces, and the two configurations.
var (
	workerPools = apiserver.Resource{Path: "apis/fairlead.run/v1alpha1/workerpools", Kind: "WorkerPool"}
	payloads    = apiserver.Resource{Path: "apis/fairlead.run/v1alpha1/runtimepayloads", Kind: "RuntimePayload"}
	runtimes    = apiserver.Resource{Path: "apis/extensions.gardener.cloud/v1alpha1/containerruntimes", Kind: "ContainerRuntime", Namespaced: true}
)

func cluster(t testing.TB) *apiserver.Server {
	s := apiserver.New(t, classes, policies, namespaces, nodes, pods, secrets, mutating, validating, workerPools, payloads, runtimes)
	for name, labels := range map[string]map[string]string{
		"kube-system": nil, "fairlead-system": nil, "team": {"tenant": "yes"},
	} {
		s.Put(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	s.Put(mutating, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "fairlead-webhook"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "a"}, {Name: "b"}},
	})
	s.Put(validating, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "fairlead-webhook"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "c"}},
	})
	return s
}

func options() webhook.Options {
	o := webhook.Defaults()
	o.Listen, o.Health, o.Drain, o.ServeAs = "127.0.0.1:0", "127.0.0.1:0", 0, []string{"127.0.0.1"}
	return o
}

// replica is a webhook that runs, and a client that believes what is injected.
type replica struct {
	*webhook.Server
	t      testing.TB
	api    *apiserver.Server
	client *http.Client
	stop   func()
}

// start runs a replica until the test ends, and waits until it is ready.
func start(t testing.TB, api *apiserver.Server, o webhook.Options) *replica {
	t.Helper()
	server, err := webhook.Open(api.Config(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	r := &replica{Server: server, t: t, api: api}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(r.stop)
	eventually(t, "ready", func() bool { return server.Ready() == nil })
	r.client = believing(t, injected(t, api))
	return r
}

// injected is the bundle of the first webhook of the validating configuration.
func injected(t testing.TB, api *apiserver.Server) []byte {
	t.Helper()
	all := api.Get(validating, "fairlead-webhook")["webhooks"].([]any)
	config, _ := all[0].(map[string]any)["clientConfig"].(map[string]any)
	text, _ := config["caBundle"].(string)
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(bundle) == 0 {
		t.Fatalf("nothing injected: %v %v", all, err)
	}
	return bundle
}

func believing(t testing.TB, bundle []byte) *http.Client {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatalf("no certificate in %s", bundle)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// send posts a body as it is.
func (r *replica) send(path, contentType string, body io.Reader) (int, []byte) {
	r.t.Helper()
	reviews, _ := r.Addresses()
	resp, err := r.client.Post("https://"+reviews.String()+path, contentType, body)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, text
}

// ask sends a review and returns the answer.
func (r *replica) ask(path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	r.t.Helper()
	code, text := r.send(path, "application/json", bytes.NewReader(reviewOf(r.t, request)))
	if code != http.StatusOK {
		r.t.Fatalf("%s: %d %s", path, code, text)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil || answer.Response.UID != request.UID || answer.Kind != "AdmissionReview" || answer.APIVersion != "admission.k8s.io/v1" {
		r.t.Fatalf("%s: %v %s", path, err, text)
	}
	return answer.Response
}

// metric is a line of /metrics that begins so, or "".
func (r *replica) metric(name string) string {
	_, health := r.Addresses()
	resp, err := http.Get("http://" + health.String() + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(name)) {
			return string(bytes.TrimSpace(line))
		}
	}
	return ""
}

func reviewOf(t testing.TB, request *admissionv1.AdmissionRequest) []byte {
	t.Helper()
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func raw(t testing.TB, o any) runtime.RawExtension {
	t.Helper()
	if o == nil {
		return runtime.RawExtension{}
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}

// about is a request for the creation of an object, or its change if there is an
// old one.
func about(t testing.TB, kind metav1.GroupVersionKind, object, old any) *admissionv1.AdmissionRequest {
	t.Helper()
	r := &admissionv1.AdmissionRequest{UID: "review-1", Kind: kind, Operation: admissionv1.Create, Object: raw(t, object), OldObject: raw(t, old)}
	if old != nil {
		r.Operation = admissionv1.Update
	}
	return r
}

var podKind = metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}

func creating(t testing.TB, p *corev1.Pod) *admissionv1.AdmissionRequest {
	r := about(t, podKind, p, nil)
	r.Namespace = "team"
	return r
}

type podOption func(*corev1.Pod)

func of(class string) podOption { return func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class } }

func noted(key, value string) podOption {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

func pod(options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/web:1"}}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

func class(name string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "runsc",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"sandbox/kind": name},
			Tolerations:  []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}},
		},
	}
}

func policyOf(name string, change func(*v1alpha1.RuntimeClassPolicySpec)) *v1alpha1.RuntimeClassPolicy {
	p := &v1alpha1.RuntimeClassPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "fairlead.run/v1alpha1", Kind: "RuntimeClassPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.RuntimeClassPolicySpec{NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "yes"}}},
	}
	change(&p.Spec)
	return p
}

func uid(i int) types.UID { return types.UID(fmt.Sprintf("pod-%d", i)) }

func nothing(s *v1alpha1.RuntimeClassPolicySpec) { s.MinimumIsolation = v1alpha1.IsolationNone }
