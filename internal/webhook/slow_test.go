package webhook_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/api/v1alpha1"
)

// Whoever promises a small body and does not send it holds up nobody.
func TestSlowSmallBodies(t *testing.T) {
	r := start(t, cluster(t), options())
	reviews, _ := r.Addresses()
	roots := r.client.Transport.(*http.Transport).TLSClientConfig.RootCAs
	for range 200 { // more than are answered at a time
		c, err := tls.Dial("tcp", reviews.String(), &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprint(c, "POST /mutate-pods HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all of them are in flight", func() bool {
		return strings.HasSuffix(r.metric("fairlead_webhook_requests_in_flight"), " 200")
	})
	for range 10 {
		if got := r.ask("/mutate-pods", creating(t, pod())); !got.Allowed {
			t.Errorf("%+v", got.Result)
		}
	}
}

// Classes that are only asked about leave nothing behind.
func TestClassesAreNotRemembered(t *testing.T) {
	api := cluster(t)
	api.Put(nodes, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	r := start(t, api, options())
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ask := func(i int) {
		c, dry := class("x"), true
		c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{}}
		for n := range 5000 {
			c.Scheduling.NodeSelector[fmt.Sprintf("a%d-%s", n, strings.Repeat("x", 50))] = fmt.Sprint(i)
		}
		request := about(t, classKind, c, nil)
		request.DryRun = &dry
		if got := r.ask("/validate-runtimeclasses", request); !got.Allowed {
			t.Fatalf("%+v", got.Result)
		}
	}
	for i := range 5 {
		ask(i)
	}
	before := used()
	for i := range 60 {
		ask(i + 5)
	}
	if after := used(); after > before+10<<20 { // each is 300 KB
		t.Errorf("%d MB of memory before, %d MB after", before>>20, after>>20)
	}
}

// An API server that has lost the answer asks about the same pod again.
func TestQuotaCountsAPodOnce(t *testing.T) {
	api := cluster(t)
	api.Put(policies, policyOf("one", func(s *v1alpha1.RuntimeClassPolicySpec) { s.Quota = []v1alpha1.ClassQuota{{ClassName: "", Pods: 1}} }))
	r := start(t, api, options())
	p := pod()
	p.UID = "one"
	for range 3 {
		if got := r.ask("/validate-pods", creating(t, p)); !got.Allowed {
			t.Errorf("%+v", got.Result)
		}
	}
	p.UID = "other"
	if got := r.ask("/validate-pods", creating(t, p)); got.Allowed {
		t.Error("another pod has the place, too")
	}
}

// Mutating webhooks see pods before anybody has validated them.
func TestNamesThatAreNone(t *testing.T) {
	api := cluster(t)
	r := start(t, api, options())
	for _, name := range []string{"a/b", "..", "%", "A", strings.Repeat("a", 100_000)} {
		if got := r.ask("/mutate-pods", creating(t, pod(of(name)))); got.Allowed || got.Result.Code != http.StatusForbidden {
			t.Errorf("%.20s: %+v", name, got.Result)
		}
	}
}

// A policy that is tried out changes no pod, and says what it would do.
func TestDefaultOfAPolicyThatWarns(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	api.Put(policies, policyOf("try", func(s *v1alpha1.RuntimeClassPolicySpec) {
		s.Mode, s.DefaultClass = v1alpha1.ModeWarn, "gvisor"
	}))
	r := start(t, api, options())
	if got := r.ask("/mutate-pods", creating(t, pod())); !got.Allowed || got.Patch != nil {
		t.Errorf("%+v %s", got.Result, got.Patch)
	}
	if got := r.ask("/validate-pods", creating(t, pod())); !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "would give it RuntimeClass gvisor") {
		t.Errorf("%+v %q", got.Result, got.Warnings)
	}
}
