package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// failures are what can happen to a webhook. The cluster goes on as failurePolicy
// says, and all is well again without anybody's help.
func (h *hook) failures(t *testing.T) {
	h.namespaceFor(t, "load", nil)
	h.classFor(t, object{"metadata": object{"name": "tested"}, "handler": "test-handler", "overhead": object{"podFixed": object{"memory": "16Mi"}}})
	t.Run("killed", h.killed)
	t.Run("Secret deleted", h.secretDeleted)
	t.Run("certificate ended", h.certificateEnded)
	t.Run("authority taken away", h.authorityTaken)
	t.Run("CRD deleted", h.crdDeleted)
	t.Run("flood", h.flood)
	t.Run("reviews that are none", h.noReviews)
	h.noPanics(t)
}

// load creates and deletes pods without pause.
type load struct {
	mu     sync.Mutex
	passed int
	failed []string
	stop   func()
}

// counts are those since the last time.
func (l *load) counts() (passed int, failed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	passed, failed = l.passed, l.failed
	l.passed, l.failed = 0, nil
	return passed, failed
}

func (l *load) count(got answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.failed = append(l.failed, err.Error())
	case !got.ok():
		l.failed = append(l.failed, got.String())
	default:
		l.passed++
	}
}

// loading begins a load in a namespace. It ends with the test, if not before.
func (h *hook) loading(t *testing.T, namespace string, spec object) *load {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	l := &load{}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				h.loadOnce(l, podsOf(namespace), spec)
			}
		})
	}
	l.stop = sync.OnceFunc(func() { end(); all.Wait() })
	t.Cleanup(l.stop)
	return l
}

// loadOnce lets a request end that has begun: its pod has to be deleted.
func (h *hook) loadOnce(l *load, path string, spec object) {
	pod := gated("", spec)
	pod["metadata"] = object{"generateName": "load-"}
	got, err := h.do(context.Background(), http.MethodPost, path, pod)
	l.count(got, err)
	if err != nil || !got.ok() {
		return
	}
	var made corev1.Pod
	if err := json.Unmarshal(got.body, &made); err != nil {
		l.count(answer{}, err)
		return
	}
	if got, err := h.do(context.Background(), http.MethodDelete, path+"/"+made.Name+"?gracePeriodSeconds=0", nil); err != nil || !got.ok() {
		l.count(got, fmt.Errorf("delete: %w %s", err, got))
	}
}

// passes waits until a load has done so many more.
func (l *load) passes(t *testing.T, more int) {
	t.Helper()
	at := func() (int, string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.passed, fmt.Sprintf("%d pods are created, and %d are not: %q", l.passed, len(l.failed), l.failed[max(0, len(l.failed)-1):])
	}
	before, _ := at()
	eventually(t, func() error {
		if now, all := at(); now < before+more {
			return errors.New(all)
		}
		return nil
	})
}

const fewPods = 20

// Killed under load: pods of kube-system are still created, others not, and those that
// are there change and end.
func (h *hook) killed(t *testing.T) {
	image := imageOf(t, "agnhost")
	for _, name := range []string{"stays", "ends", "held"} {
		apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: load}
spec:
  terminationGracePeriodSeconds: 0
  runtimeClassName: tested
  containers: [{name: c, image: %q, args: [pause]}]
`, name, image))
	}
	kubectl(t, "wait", "-n", "load", "--for=condition=Ready", "pod/stays", "pod/ends", "pod/held", "--timeout", patience.String())
	held := podsOf("load") + "/held"
	h.must(t, http.MethodPatch, held, object{"metadata": object{"finalizers": []string{"e2e.fairlead.run/hold"}}}, nil)
	h.noPanics(t)

	users, system := h.loading(t, "load", object{"runtimeClassName": "tested"}), h.loading(t, "kube-system", nil)
	users.passes(t, fewPods)
	if _, failed := users.counts(); len(failed) > 0 {
		t.Errorf("before: %d pods are not created: %q", len(failed), failed[0])
	}
	if err := h.process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range fewPods {
		got := h.ask(t, http.MethodPost, podsOf("load"), gated("refused", nil))
		if got.code != http.StatusInternalServerError || !strings.Contains(got.message(), `failed calling webhook "pods.mutate.fairlead.run"`) {
			t.Fatalf("a pod without its webhook: %s", got)
		}
	}
	system.passes(t, fewPods)
	h.must(t, http.MethodPatch, podsOf("load")+"/stays", object{"metadata": object{"labels": object{"changed": "yes"}}}, nil)
	kubectl(t, "delete", "pod", "-n", "load", "ends", "--timeout", patience.String())
	kubectl(t, "delete", "pod", "-n", "load", "held", "--wait=false")
	h.must(t, http.MethodPatch, held, object{"metadata": object{"finalizers": []string{}}}, nil)
	kubectl(t, "wait", "-n", "load", "--for=delete", "pod/held", "--timeout", patience.String())
	h.must(t, http.MethodPost, "/apis/node.k8s.io/v1/runtimeclasses?dryRun=All", object{"metadata": object{"name": "made"}, "handler": "runc"}, nil)
	if got := h.ask(t, http.MethodPost, policyPath+"?dryRun=All", object{
		"apiVersion": "fairlead.run/v1alpha1", "kind": "RuntimeClassPolicy", "metadata": object{"name": "made"}, "spec": object{"namespaceSelector": object{}, "defaultClass": "tested"},
	}); got.code != http.StatusInternalServerError {
		t.Errorf("a policy without its webhook: %s", got)
	}

	h.startAgain(t)
	users.counts()
	users.passes(t, fewPods)
	users.stop()
	system.stop()
	if _, failed := users.counts(); len(failed) > 0 {
		t.Errorf("after: %d pods are not created: %q", len(failed), failed[0])
	}
	if passed, failed := system.counts(); len(failed) > 0 {
		t.Errorf("kube-system: %d pods are created, and %d are not: %q", passed, len(failed), failed[0])
	}
	kubectl(t, "wait", "-n", "load", "--for=condition=Ready", "pod/stays", "--timeout", patience.String())
	want(t, restartsIn(t, "load", "stays"), "0")
}

func restartsIn(t *testing.T, namespace, pod string) string {
	t.Helper()
	return kubectl(t, "get", "pod", "-n", namespace, pod, "-o", "jsonpath={.status.containerStatuses[*].restartCount}")
}

// startAgain starts a webhook that was ended.
func (h *hook) startAgain(t *testing.T) {
	t.Helper()
	if err := h.process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := h.process.Await(t.Context(), patience, h.ready); err != nil {
		t.Fatal(err)
	}
	// An API server hears of the authority a moment after the webhook has told it.
	eventually(t, func() error { return h.admits(t) })
}

// admits says why the webhook does not change pods that are created.
func (h *hook) admits(t *testing.T) error {
	t.Helper()
	got := h.ask(t, http.MethodPost, podsOf("load")+"?dryRun=All", gated("a", object{"runtimeClassName": "tested"}))
	if !got.ok() || !strings.Contains(string(got.body), `"overhead":{"memory":"16Mi"}`) {
		return fmt.Errorf("no pod with the overhead of its class: %s", got)
	}
	return nil
}

// served is the certificate that a webhook serves with.
func served(t *testing.T, address string) *x509.Certificate {
	t.Helper()
	// Whether it is to be believed is what the tests are about.
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// replaced waits until the webhook serves with another certificate, which all API
// servers are told to believe.
func (h *hook) replaced(t *testing.T, before *x509.Certificate) {
	t.Helper()
	eventually(t, func() error {
		now := served(t, webhookReviews)
		if now.Equal(before) {
			return fmt.Errorf("the webhook still serves with certificate %s", now.SerialNumber)
		}
		for name, bundle := range h.bundles(t) {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM([]byte(bundle))
			if _, err := now.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
				return fmt.Errorf("whoever is told of %s does not believe the certificate: %w", name, err)
			}
		}
		return nil
	})
	eventually(t, func() error { return h.admits(t) })
}

// With the Secret the authority is lost. Another takes over, and no pod is lost by it.
func (h *hook) secretDeleted(t *testing.T) {
	before, l := served(t, webhookReviews), h.loading(t, "load", nil)
	l.passes(t, fewPods)
	h.must(t, http.MethodDelete, webhookSecret, nil, nil)
	h.replaced(t, before)
	l.passes(t, fewPods)
	l.stop()
	if passed, failed := l.counts(); len(failed) > 0 {
		t.Errorf("while another authority took over, %d pods were created, and %d were not: %q", passed, len(failed), failed[0])
	}
	h.must(t, http.MethodGet, webhookSecret, nil, nil)
}

// The Secret has a certificate that has ended: it is replaced by a running webhook, and
// by one that starts with it.
func (h *hook) certificateEnded(t *testing.T) {
	before := served(t, webhookReviews)
	h.endCertificate(t)
	h.replaced(t, before)
	if err := h.process.Stop(); err != nil {
		t.Fatal(err)
	}
	ended := h.endCertificate(t)
	h.startAgain(t)
	if now := served(t, webhookReviews); now.Equal(ended) || time.Now().After(now.NotAfter) {
		t.Errorf("the webhook serves with a certificate that holds until %s", now.NotAfter)
	}
	h.replaced(t, ended)
}

// endCertificate puts a certificate into the Secret that the authority there has
// signed, and that has ended.
func (h *hook) endCertificate(t *testing.T) *x509.Certificate {
	t.Helper()
	var secret corev1.Secret
	h.must(t, http.MethodGet, webhookSecret, nil, &secret)
	authority, err := tls.X509KeyPair(secret.Data["ca.crt"], secret.Data["ca.key"])
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyText, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		DNSNames: []string{"fairlead-webhook.fairlead-system.svc", "fairlead-webhook.fairlead-system"}, IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	h.must(t, http.MethodPatch, webhookSecret, object{"data": object{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyText}),
	}}, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// The manifests are applied once more, as they are, and so without an authority.
func (h *hook) authorityTaken(t *testing.T) {
	kubectlInput(t, configurations(t), "replace", "-f", "-")
	h.told(t)
	eventually(t, func() error { return h.admits(t) })
}

// Without their CRD there are no policies; with it, those hold that are made then.
func (h *hook) crdDeleted(t *testing.T) {
	crds, err := filepath.Abs("../../deploy/crds")
	if err != nil {
		t.Fatal(err)
	}
	rule := object{"namespaceSelector": only("load"), "allowedClasses": []string{"tested"}}
	absent := func(want string) {
		t.Helper()
		eventually(t, func() error {
			got := h.metrics(t, `fairlead_webhook_cache_absent{resource="runtimeclasspolicies"}`)
			if len(got) != 1 || !strings.HasSuffix(got[0], " "+want) {
				return fmt.Errorf("the webhook says %q, want %s", got, want)
			}
			return nil
		})
	}
	h.policyFor(t, "before", rule)
	h.refusal(t, "load", gated("a", nil), "before")
	kubectl(t, "delete", "-f", crds, "--timeout", patience.String())
	eventually(t, func() error {
		if got := h.ask(t, http.MethodPost, podsOf("load")+"?dryRun=All", gated("a", nil)); !got.ok() {
			return fmt.Errorf("a policy that is gone holds: %s", got)
		}
		return h.admits(t)
	})
	absent("1")
	if err := h.ready(t.Context()); err != nil {
		t.Error(err)
	}
	kubectl(t, "apply", "--server-side", "-f", crds)
	kubectl(t, "wait", "--for=condition=Established", "crd/runtimeclasspolicies.fairlead.run")
	absent("0")
	// API servers serve a CRD a moment after they say that it is established.
	eventually(t, func() error {
		if got := h.ask(t, http.MethodGet, policyPath, nil); !got.ok() {
			return fmt.Errorf("the API of policies: %s", got)
		}
		return nil
	})
	h.policyFor(t, "after", rule)
	h.refusal(t, "load", gated("a", nil), "after")
}

// Reviews of 5 MB from somebody who is no API server, and pods as large as one takes
// them: all get an answer, small pods are created meanwhile, and the memory stays below
// the limit in deploy/webhook.
func (h *hook) flood(t *testing.T) {
	client, large := h.client(t), reviewOf(t, gated("large", object{
		"runtimeClassName": "tested",
		"containers":       []object{{"name": "c", "image": "none", "env": []object{{"name": "TEXT", "value": strings.Repeat("x", 5<<20)}}}},
	}))
	small, codes := h.loading(t, "load", object{"runtimeClassName": "tested"}), make(chan int, 64)
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for range 5 {
				code, text, err := h.review(t.Context(), client, "/mutate-pods", large)
				if err != nil || code != http.StatusOK && code != http.StatusServiceUnavailable {
					t.Errorf("%v %d %.300s", err, code, text)
					return
				}
				codes <- code
			}
		})
	}
	flood.Wait()
	small.passes(t, 1)
	small.stop()
	close(codes)
	answered := map[int]int{}
	for code := range codes {
		answered[code]++
	}
	passed, failed := small.counts()
	t.Logf("reviews of 5 MB by code: %v; pods meanwhile: %d", answered, passed)
	if answered[http.StatusOK] == 0 || len(failed) > 0 {
		t.Errorf("answers by code: %v; %d small pods failed: %q", answered, len(failed), failed)
	}
	for range 4 {
		pod := gated("large", object{
			"runtimeClassName": "tested",
			"containers":       []object{{"name": "c", "image": "none", "env": []object{{"name": "TEXT", "value": strings.Repeat("x", 2900<<10)}}}},
		})
		if got := h.ask(t, http.MethodPost, podsOf("load")+"?dryRun=All", pod); !got.ok() || !bytes.Contains(got.body, []byte(`"overhead":{"memory":"16Mi"}`)) {
			t.Errorf("a pod of 2.9 MB: %s", got)
		}
	}
	const limit = 256 << 10
	if peak := peakMemory(t); peak > limit {
		t.Errorf("the webhook took %d KiB at its most, and its limit is %d", peak, limit)
	}
}

// peakMemory is the most that the webhook has taken, in KiB.
func peakMemory(t *testing.T) int {
	t.Helper()
	n := memoryOf(t, "webhook", "VmHWM:")
	t.Logf("the webhook took %d KiB at its most", n)
	return n
}

// memoryOf is what the kernel says of the memory of the process with that first argument,
// in KiB: its VmRSS: or its VmHWM:.
func memoryOf(t *testing.T, argument, what string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		line, err := os.ReadFile(file)
		if argv := strings.Split(string(line), "\x00"); err != nil || len(argv) < 2 || argv[1] != argument {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), what)
		n, err := strconv.Atoi(strings.Fields(rest + " ?")[0])
		if err != nil {
			t.Fatalf("%v: %s", err, status)
		}
		return n
	}
	t.Fatalf("no process has %q as its first argument", argument)
	return 0
}

// reviewOf is what an API server would ask about a pod that is created.
func reviewOf(t *testing.T, pod object) string {
	t.Helper()
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	text, err := json.Marshal(object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": object{
		"uid": "review-1", "operation": "CREATE", "namespace": "load", "kind": object{"group": "", "version": "v1", "kind": "Pod"},
		"resource": object{"group": "", "version": "v1", "resource": "pods"}, "object": pod,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is no review gets a code and a sentence.
func (h *hook) noReviews(t *testing.T) {
	client, good := h.client(t), reviewOf(t, gated("a", object{"runtimeClassName": "tested"}))
	with := func(old, replacement string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("the review has no %s: %s", old, good)
		}
		return strings.Replace(good, old, replacement, 1)
	}
	if code, text, err := h.review(t.Context(), client, "/mutate-pods", good); err != nil || code != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
		t.Fatalf("a review that is one is answered with %v %d %s", err, code, text)
	}
	for name, test := range map[string]struct{ body, says string }{
		"v1beta1":              {with(`"admission.k8s.io/v1"`, `"admission.k8s.io/v1beta1"`), "admissionReviewVersions: [v1]"},
		"v2":                   {with(`"admission.k8s.io/v1"`, `"admission.k8s.io/v2"`), "admission.k8s.io/v2"},
		"another kind":         {with(`"AdmissionReview"`, `"ConversionReview"`), "ConversionReview"},
		"another group":        {with(`"admission.k8s.io/v1"`, `"apiextensions.k8s.io/v1"`), "apiextensions.k8s.io/v1"},
		"about a Service":      {with(`"kind":"Pod","version":"v1"`, `"kind":"Service","version":"v1"`), "Service"},
		"two keys":             {with(`"uid":"review-1"`, `"uid":"review-1","uid":"review-2"`), `duplicate field "request.uid"`},
		"two keys in the pod":  {with(`"runtimeClassName":"tested"`, `"runtimeClassName":"tested","runtimeClassName":"none"`), "duplicate field"},
		"costly quantity":      {with(`"runtimeClassName":"tested"`, `"overhead":{"cpu":"1e-1000000000"}`), "1e-1000000000"},
		"without a request":    {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, "no request"},
		"no JSON":              {"hello", "invalid character"},
		"nothing":              {"", "unexpected end"},
		"a list":               {"[" + good + "]", "array"},
		"deep":                 {strings.Repeat("[", 1<<20), "depth"},
		"an unknown operation": {with(`"operation":"CREATE"`, `"operation":"LOOK"`), "LOOK"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text, err := h.review(t.Context(), client, "/mutate-pods", test.body)
			if err != nil || code != http.StatusBadRequest || !strings.Contains(text, test.says) || len(text) > 2048 {
				t.Errorf("%v %d %.2100s", err, code, text)
			}
		})
	}
	h.noPanics(t)
}
