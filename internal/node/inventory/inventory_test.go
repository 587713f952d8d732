package inventory

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

func pods() []Pod {
	return []Pod{
		{ID: "aaaa1111", Namespace: "default", Name: "web"},
		{ID: "aaaa2222", Namespace: "prod", Name: "web"},
		{ID: "bbbb3333", Namespace: "prod", Name: "db"},
	}
}

func TestFind(t *testing.T) {
	tests := []struct{ ref, id, err string }{
		{"db", "bbbb3333", ""},
		{"prod/web", "aaaa2222", ""},
		{"default/web", "aaaa1111", ""},
		{"bbb", "bbbb3333", ""},
		{"aaaa2222", "aaaa2222", ""},
		{"web", "", "may be any of these pods; use namespace/name or more of the id: default/web (aaaa1111), prod/web (aaaa2222)"},
		{"aaaa", "", "may be any"},
		{"bb", "", `there is no pod "bb"`},
		{"wep", "", "did you mean web? The pods here are web, prod/web, prod/db"},
		{"zzzzzzzz", "", `there is no pod "zzzzzzzz". The pods here are`},
	}
	for _, tt := range tests {
		p, err := Find(pods(), tt.ref)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want %q", tt.ref, err, tt.err)
			}
			continue
		}
		if err != nil || p.ID != tt.id {
			t.Errorf("%s: %v %v", tt.ref, p, err)
		}
	}
	if _, err := Find(nil, "x"); err == nil || !strings.Contains(err.Error(), "nor any other") {
		t.Error(err)
	}
}

func TestFindContainer(t *testing.T) {
	p := Pod{Namespace: "default", Name: "web", Containers: []Container{{Name: "init", State: "Exited"}, {Name: "main", State: "Running"}}}
	if c, err := p.Find(""); err != nil || c.Name != "main" {
		t.Errorf("the first that runs: %v %v", c, err)
	}
	if c, err := p.Find("init"); err != nil || c.Name != "init" {
		t.Errorf("by name: %v %v", c, err)
	}
	if _, err := p.Find("x"); err == nil || !strings.Contains(err.Error(), "it has init, main") {
		t.Error(err)
	}
	if _, err := (&Pod{}).Find(""); err == nil {
		t.Error("a pod without containers has one")
	}
}

// TestPort finds ports by what their container's annotation says of them.
func TestPort(t *testing.T) {
	c := &runtimeapi.Container{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Annotations: map[string]string{
		podspec.AnnotationPorts: `[{"containerPort":53,"protocol":"UDP"},{"name":"http","containerPort":8080},{"name":"broken","containerPort":70000}]`,
	}}
	p := Pod{Namespace: "lab", Name: "web", Containers: []Container{viewContainer(&runtimeapi.Container{Metadata: &runtimeapi.ContainerMetadata{}}), viewContainer(c)}}
	for text, want := range map[string]uint16{"http": 8080, "9": 9, "65535": 65535} {
		if n, err := p.Port(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for text, want := range map[string]string{"htp": `pod lab/web has no port "htp"; it has http, broken`, "broken": "no port", "0": "no port", "65536": "no port"} {
		if n, err := p.Port(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	if n, err := (&Pod{Name: "x"}).Port("http"); err == nil || !strings.Contains(err.Error(), "its containers name none") {
		t.Errorf("%d, %v", n, err)
	}
}

func TestLatest(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	got := latest([]Container{
		{ID: "1", Name: "b", Attempt: 0, CreatedAt: at(2)},
		{ID: "2", Name: "b", Attempt: 1, CreatedAt: at(5)},
		{ID: "3", Name: "a", Attempt: 0, CreatedAt: at(3)},
	})
	if len(got) != 2 || got[0].ID != "3" || got[1].ID != "2" {
		t.Errorf("%+v", got)
	}
}
