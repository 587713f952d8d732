package flaky

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	nodev1beta1 "k8s.io/api/node/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// upstream is an API server that says what it was asked, and tells of two events.
type upstream struct {
	mu    sync.Mutex
	asked []string
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	u.asked = append(u.asked, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body))
	u.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		fmt.Fprint(w, `{"apiVersion":"node.k8s.io/v1"}`)
		return
	}
	for i := range 2 {
		fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"node.k8s.io/v1","n":%d}}`, i)
		_ = http.NewResponseController(w).Flush()
	}
	<-r.Context().Done()
}

func (u *upstream) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string{}, u.asked...)
}

func start(t *testing.T) (*Proxy, *upstream) {
	t.Helper()
	u := &upstream{}
	s := httptest.NewServer(u)
	p, err := Start(t.Context(), s.URL, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		s.CloseClientConnections()
		s.Close()
	})
	return p, u
}

func TestStorm(t *testing.T) {
	p, u := start(t)
	p.Set(Storm{Writes: 1})
	for range 200 {
		answer, err := http.Post(p.Host()+"/api/v1/nodes", "application/json", strings.NewReader("{}"))
		if err != nil {
			continue
		}
		answer.Body.Close()
		if answer.StatusCode < 400 {
			t.Errorf("a write went well: %s", answer.Status)
		}
	}
	all, counts := u.all(), p.Counts()
	if len(all) != counts["lost"] || len(all) == 0 {
		t.Errorf("%d requests were carried out, and %v", len(all), counts)
	}
	for _, what := range []fault{conflict, busy, broken, away, unheard} {
		if counts[string(what)] == 0 {
			t.Errorf("%s never happened: %v", what, counts)
		}
	}
	answer, err := http.Get(p.Host() + "/api/v1/nodes")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("a read: %v %v", answer, err)
	}
	answer.Body.Close()
}

func TestHold(t *testing.T) {
	p, _ := start(t)
	p.Hold("nodes")
	answer, err := http.Get(p.Host() + "/api/v1/nodes?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := make(chan string, 2)
	go func() {
		for all := bufio.NewScanner(answer.Body); all.Scan(); {
			lines <- all.Text()
		}
	}()
	other, err := http.Get(p.Host() + "/api/v1/pods?watch=true") // which is not held
	if err != nil {
		t.Fatal(err)
	}
	defer other.Body.Close()
	if _, err := bufio.NewReader(other.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-lines:
		t.Errorf("it was told: %s", line)
	default:
	}
	p.Release()
	for i := range 2 {
		if line := <-lines; !strings.Contains(line, fmt.Sprintf(`"n":%d`, i)) {
			t.Errorf("event %d: %s", i, line)
		}
	}
}

func TestCut(t *testing.T) {
	p, _ := start(t)
	answer, err := http.Get(p.Host() + "/api/v1/nodes?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	p.Set(Storm{Life: 200 * time.Millisecond}) // also for those that have begun
	text, _ := io.ReadAll(answer.Body)
	if expired := strings.Contains(string(text), `"reason":"Expired"`); expired != (p.Counts()["expired"] == 1) || p.Counts()["cut"] != 1 {
		t.Errorf("%v: %s", p.Counts(), text)
	}
}

func TestBeta(t *testing.T) {
	p, u := start(t)
	p.Beta = true
	scheme := runtime.NewScheme()
	if err := nodev1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var wire bytes.Buffer
	class := &nodev1beta1.RuntimeClass{TypeMeta: metav1.TypeMeta{APIVersion: oldGroup, Kind: "RuntimeClass"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}, Handler: "h"}
	if err := protobuf.NewSerializer(scheme, scheme).Encode(class, &wire); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{wire.String(), `{"apiVersion":"node.k8s.io/v1beta1","handler":"h"}`} {
		answer, err := http.Post(p.Host()+"/apis/node.k8s.io/v1beta1/runtimeclasses", "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || string(text) != `{"apiVersion":"node.k8s.io/v1beta1"}` {
			t.Errorf("%v: %s", err, text)
		}
	}
	for _, got := range u.all() {
		if !strings.HasPrefix(got, "POST /apis/node.k8s.io/v1/runtimeclasses") || strings.Contains(got, "v1beta1") || !strings.Contains(got, newGroup) {
			t.Errorf("%q", got)
		}
	}
	if len(u.all()) != 2 {
		t.Errorf("%q", u.all())
	}
}
