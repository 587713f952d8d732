package telemetry

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func text(t *testing.T, r *Registry) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFamilies(t *testing.T) {
	var r Registry
	errs := r.Counter("errors_total", "Errors.", "handler")
	errs.Add(1, "runc")
	errs.Add(2, "crun")
	errs.Add(1, "runc")
	r.Gauge("pods", "Pods.", nil, func(tell func(float64, ...string)) { tell(3) })
	r.Counter("odd_total", "Odd.", "a", "b").Add(1, "quote\" back\\ line\n", "")
	want := `# HELP errors_total Errors.
# TYPE errors_total counter
errors_total{handler="crun"} 2
errors_total{handler="runc"} 2
# HELP pods Pods.
# TYPE pods gauge
pods 3
# HELP odd_total Odd.
# TYPE odd_total counter
odd_total{a="quote\" back\\ line\n",b=""} 1
`
	if got := text(t, &r); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Buckets count all that is not longer.
func TestHistogram(t *testing.T) {
	var r Registry
	h := r.Histogram("start_seconds", "Starts.", "handler")
	for _, seconds := range []float64{0.001, 0.004, 0.2, 1000} {
		h.Observe(seconds, "runc")
	}
	days := r.Histogram("age_seconds", "Ages.").Within(60, 86400)
	days.Observe(3600)
	got := text(t, &r)
	for _, line := range []string{
		`age_seconds_bucket{le="60"} 0`, `age_seconds_bucket{le="86400"} 1`, `age_seconds_bucket{le="+Inf"} 1`, "age_seconds_count 1",
		"# TYPE start_seconds histogram",
		`start_seconds_bucket{handler="runc",le="0.001"} 1`, `start_seconds_bucket{handler="runc",le="0.0025"} 1`,
		`start_seconds_bucket{handler="runc",le="0.005"} 2`, `start_seconds_bucket{handler="runc",le="0.25"} 3`,
		`start_seconds_bucket{handler="runc",le="300"} 3`, `start_seconds_bucket{handler="runc",le="+Inf"} 4`,
		`start_seconds_sum{handler="runc"} 1000.205`, `start_seconds_count{handler="runc"} 4`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, got)
		}
	}
}

func TestSeriesAreBounded(t *testing.T) {
	var r Registry
	c := r.Counter("x_total", "X.", "name")
	for i := range 10 * maxSeries {
		c.Add(1, fmt.Sprint(i))
	}
	if n := strings.Count(text(t, &r), "\nx_total{"); n != maxSeries {
		t.Errorf("%d series", n)
	}
}

// counting is a reader that counts while it is being told.
type counting struct {
	c *Counter
	h *Histogram
}

func (r counting) Write(p []byte) (int, error) {
	r.c.Add(1, "runc")
	r.h.Observe(1, "runc")
	return len(p), nil
}

// Whoever counts does not wait for whoever reads.
func TestSlowReader(t *testing.T) {
	var r Registry
	reader := counting{r.Counter("x_total", "X.", "handler"), r.Histogram("y_seconds", "Y.", "handler")}
	for i := range maxSeries { // more than any buffer has
		reader.c.Add(1, fmt.Sprint("handler-", i))
		reader.h.Observe(1, fmt.Sprint("handler-", i))
	}
	if err := r.Write(reader); err != nil {
		t.Error(err)
	}
}

func TestServe(t *testing.T) {
	var r Registry
	r.Counter("x_total", "X.").Add(1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, &r) }()
	for path, want := range map[string]int{"/metrics": 200, "/": 404} {
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want || want == 200 && !strings.Contains(string(body), "x_total 1\n") {
			t.Errorf("%s: %d %q %v", path, resp.StatusCode, body, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	broken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = broken.Close()
	if err := Serve(t.Context(), broken, &r); err == nil {
		t.Error("no error without a listener")
	}
}

// TestProcess tells of this process by the names that dashboards ask for.
func TestProcess(t *testing.T) {
	var out strings.Builder
	write := Process()
	for range 2 {
		out.Reset()
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"go_goroutines ", "go_memstats_alloc_bytes ", "process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds ", "process_start_time_seconds "} {
		if !strings.Contains(out.String(), "\n"+want) {
			t.Errorf("there is no %s in\n%s", want, &out)
		}
	}
}
