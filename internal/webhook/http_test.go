package webhook_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const jsonType = "application/json"

// What no API server sends gets a sentence, and nothing of it is acted on.
func TestBadRequests(t *testing.T) {
	r := start(t, cluster(t), options())
	good := string(reviewOf(t, creating(t, pod())))
	service := creating(t, pod())
	service.Kind = metav1.GroupVersionKind{Version: "v1", Kind: "Service"}
	for name, test := range map[string]struct {
		contentType, body string
		code              int
		says              string
	}{
		"no JSON":              {body: "hello", code: http.StatusBadRequest, says: "invalid character"},
		"nothing":              {body: "", code: http.StatusBadRequest, says: "unexpected end"},
		"two documents":        {body: good + good, code: http.StatusBadRequest, says: "after top-level value"},
		"type":                 {contentType: "application/yaml", body: good, code: http.StatusUnsupportedMediaType, says: "application/json"},
		"no type":              {contentType: " ", body: good, code: http.StatusUnsupportedMediaType, says: "application/json"},
		"kind":                 {body: strings.Replace(good, `"AdmissionReview"`, `"ConversionReview"`, 1), code: http.StatusBadRequest, says: `"ConversionReview"`},
		"v1beta1":              {body: strings.Replace(good, "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), code: http.StatusBadRequest, says: "admissionReviewVersions: [v1]"},
		"no request":           {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, code: http.StatusBadRequest, says: "no request"},
		"no uid":               {body: strings.Replace(good, "review-1", "", 1), code: http.StatusBadRequest, says: "request.uid"},
		"operation":            {body: strings.Replace(good, `"CREATE"`, `"LOOK"`, 1), code: http.StatusBadRequest, says: `"LOOK"`},
		"object of other kind": {body: string(reviewOf(t, service)), code: http.StatusBadRequest, says: "this path is for"},
		"no object":            {body: strings.Replace(good, `"object":{`, `"something":{`, 1), code: http.StatusBadRequest, says: "request.object is missing"},
		"double key of review": {body: strings.Replace(good, `"uid":"review-1"`, `"uid":"review-1","uid":"2"`, 1), code: http.StatusBadRequest, says: `duplicate field "request.uid"`},
		"double key of pod":    {body: strings.Replace(good, `"containers":`, `"runtimeClassName":"a","runtimeClassName":"b","containers":`, 1), code: http.StatusBadRequest, says: "duplicate field"},
		"field of other type":  {body: strings.Replace(good, `"containers":`, `"runtimeClassName":7,"containers":`, 1), code: http.StatusBadRequest, says: "runtimeClassName"},
		"costly quantity":      {body: strings.Replace(good, `"containers":`, `"overhead":{"cpu":"1e-1000000000"},"containers":`, 1), code: http.StatusBadRequest, says: "1e-1000000000"},
		"costly number":        {body: strings.Replace(good, `"containers":`, `"overhead":{"cpu": 1e-1000000000},"containers":`, 1), code: http.StatusBadRequest, says: "1e-1000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			contentType := jsonType
			if test.contentType != "" {
				contentType = strings.TrimSpace(test.contentType)
			}
			code, text := r.send("/mutate-pods", contentType, strings.NewReader(test.body))
			if code != test.code || !strings.Contains(string(text), test.says) || len(text) > 2048 {
				t.Errorf("%d %.3000s", code, text)
			}
		})
	}
	reviews, _ := r.Addresses()
	resp, err := r.client.Get("https://" + reviews.String() + "/mutate-pods")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", resp.StatusCode)
	}
	if code, _ := r.send("/elsewhere", jsonType, strings.NewReader(good)); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	if line := r.metric("fairlead_webhook_panics_total"); !strings.HasSuffix(line, " 0") {
		t.Errorf("metric: %s", line)
	}
}

// A number that only looks costly, where no quantity stands, is somebody's text.
func TestHashesAreNoQuantities(t *testing.T) {
	r := start(t, cluster(t), options())
	p := pod(noted("commit", "12e4567"), func(p *corev1.Pod) { p.Labels["commit"] = "3e99999" })
	if got := r.ask("/mutate-pods", creating(t, p)); !got.Allowed {
		t.Errorf("%+v", got.Result)
	}
}

// What a newer API server has in reviews and pods is left alone.
func TestUnknownFieldsPass(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	r := start(t, api, options())
	body := string(reviewOf(t, creating(t, pod(of("gvisor")))))
	body = strings.Replace(body, `"containers":`, `"fromTheFuture":{"a":1},"containers":`, 1)
	body = strings.Replace(body, `"request":{`, `"request":{"fromTheFuture":true,`, 1)
	if code, text := r.send("/mutate-pods", jsonType, strings.NewReader(body)); code != http.StatusOK || !bytes.Contains(text, []byte(`"patch"`)) {
		t.Errorf("%d %s", code, text)
	}
}

// endless is a body that never ends, and counts what is read of it.
type endless struct {
	io.Reader
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func TestLargeBodies(t *testing.T) {
	r := start(t, cluster(t), options())
	large := pod(noted("text", strings.Repeat("x", 5<<20)))
	if got := r.ask("/mutate-pods", creating(t, large)); !got.Allowed {
		t.Errorf("5 MB: %+v", got.Result)
	}
	if code, text := r.send("/mutate-pods", jsonType, strings.NewReader(strings.Repeat(" ", 8<<20))); code != http.StatusRequestEntityTooLarge {
		t.Errorf("8 MB: %d %s", code, text)
	}
	body := &endless{}
	reviews, _ := r.Addresses()
	request, err := http.NewRequest(http.MethodPost, "https://"+reviews.String()+"/mutate-pods", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", jsonType)
	resp, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("endless: %d", resp.StatusCode)
	}
	if body.read > 16<<20 {
		t.Errorf("%d bytes were taken", body.read)
	}
}

// Large objects go one after the other, and each gets an answer.
func TestFlood(t *testing.T) {
	r := start(t, cluster(t), options())
	large := reviewOf(t, creating(t, pod(noted("text", strings.Repeat("x", 5<<20)))))
	var flood sync.WaitGroup
	for range 12 {
		flood.Go(func() {
			if code, text := r.send("/mutate-pods", jsonType, bytes.NewReader(large)); code != http.StatusOK && code != http.StatusServiceUnavailable {
				t.Errorf("%d %s", code, text)
			}
		})
	}
	flood.Wait()
}

// stalled is a body that has begun, and goes on when it is told to.
type stalled struct {
	left int
	more <-chan struct{}
}

func (s *stalled) Read(p []byte) (int, error) {
	if s.left == 0 {
		<-s.more
		return 0, io.ErrUnexpectedEOF
	}
	n := min(len(p), s.left)
	for i := range n {
		p[i] = ' '
	}
	s.left -= n
	return n, nil
}

// Large bodies that do not come to an end hold up no small ones, although all
// come through one connection, as those of an API server do.
func TestStalledBodies(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	r := start(t, api, options())
	r.ask("/mutate-pods", creating(t, pod())) // makes the connection
	reviews, _ := r.Addresses()
	more := make(chan struct{})
	var answered atomic.Int32
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			resp, err := r.client.Post("https://"+reviews.String()+"/mutate-pods", jsonType, &stalled{left: 2 << 20, more: more})
			answered.Add(1)
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	for range 5 {
		if got := r.ask("/mutate-pods", creating(t, pod(of("gvisor")))); got.Patch == nil {
			t.Errorf("%+v", got)
		}
	}
	if n := answered.Load(); n != 0 {
		t.Errorf("%d of those that stall were given up before small ones were answered", n)
	}
	close(more)
	all.Wait()
}

// Everything at once, for the race detector.
func TestConcurrently(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	api.Put(policies, policyOf("p", nothing))
	r := start(t, api, options())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				r.ask("/mutate-pods", creating(t, pod(of("gvisor"))))
				r.ask("/validate-pods", creating(t, pod()))
				r.ask("/validate-runtimeclasses", about(t, classKind, class("x"), nil))
				r.ask("/validate-policies", about(t, policyKind, policyOf("x", nothing), nil))
				r.metric("fairlead_webhook_requests_total")
			}
		})
		all.Go(func() {
			for range 20 {
				api.Put(classes, class("gvisor"))
				api.Put(classes, class(string(uid(i))))
				api.Put(policies, policyOf("p", nothing))
			}
		})
	}
	all.Wait()
}

func TestHealth(t *testing.T) {
	r := start(t, cluster(t), options())
	_, health := r.Addresses()
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/": 404} {
		resp, err := http.Get("http://" + health.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	for _, name := range []string{"fairlead_webhook_cache_age_seconds", "fairlead_webhook_cache_synced", "fairlead_webhook_certificate_expiry_timestamp_seconds", "fairlead_webhook_policies_unusable"} {
		if r.metric(name) == "" {
			t.Errorf("no metric %s", name)
		}
	}
}

func TestAnswersAreReviews(t *testing.T) {
	r := start(t, cluster(t), options())
	_, text := r.send("/mutate-pods", jsonType+"; charset=utf-8", bytes.NewReader(reviewOf(t, creating(t, pod()))))
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || got["request"] != nil {
		t.Errorf("%v %s", err, text)
	}
}
