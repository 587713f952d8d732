package webhook

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/webhook/review"
	"fairlead.run/pkg/runtimeclass"
)

const body = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"}}`

func intercepted(t *testing.T) (*interceptor, func(rule) *httptest.ResponseRecorder) {
	cache := cluster.NewCache(nil, cluster.Options{})
	log := slog.New(slog.DiscardHandler)
	i := newInterceptor(newMetrics(newKnown(nil, cache, log), func() time.Time { return time.Time{} }), log)
	return i, func(ask rule) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/x", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		i.serving("x", ask).ServeHTTP(w, r)
		return w
	}
}

func told(t *testing.T, i *interceptor, line string) {
	t.Helper()
	var b strings.Builder
	if err := i.metrics.registry.Write(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), line+"\n") {
		t.Errorf("no %s in\n%s", line, b.String())
	}
}

// A panic costs its own request.
func TestPanic(t *testing.T) {
	i, send := intercepted(t)
	for range 3 {
		if got := send(func(context.Context, *review.Request) (review.Answer, error) { panic("x") }); got.Code != http.StatusInternalServerError || strings.Contains(got.Body.String(), "goroutine") {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
	if got := send(func(context.Context, *review.Request) (review.Answer, error) { return admitted, nil }); got.Code != http.StatusOK {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	told(t, i, "fairlead_webhook_panics_total 3")
	told(t, i, `fairlead_webhook_requests_total{webhook="x",operation="CREATE",result="failed"} 3`)
}

// However many classes are refused, and whatever their names: the series of the
// metric stay few, and the reason is still told.
func TestRejectionsAreBounded(t *testing.T) {
	i, send := intercepted(t)
	for n := range 1000 {
		send(func(context.Context, *review.Request) (review.Answer, error) {
			return review.Answer{Refused: &runtimeclass.Rejection{Reason: runtimeclass.ReasonMissing, Class: strings.Repeat("x", n)}}, nil
		})
	}
	told(t, i, `fairlead_webhook_rejections_total{webhook="x",reason="ClassMissing",class="_missing"} 999`)
	told(t, i, `fairlead_webhook_rejections_total{webhook="x",reason="ClassMissing",class="_none"} 1`)
}
