package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/images"
)

// plugins is a folder of programs, and what they were asked.
type plugins struct {
	t   *testing.T
	dir string
}

func newPlugins(t *testing.T) plugins { return plugins{t, t.TempDir()} }

// script writes a plugin. It notes each request in NAME.asked.
func (p plugins) script(name, text string) {
	p.t.Helper()
	body := "#!/bin/sh\ncat >>'" + p.dir + "/" + name + ".asked'\necho >>'" + p.dir + "/" + name + ".asked'\n" + text
	path := filepath.Join(p.dir, name)
	// A script that is written and run at once may be busy by a fork in between.
	if err := os.WriteFile(path+".new", []byte(body), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

func (p plugins) asked(name string) []string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name+".asked"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return strings.Fields(string(data))
}

func (p plugins) load(config string, accounts Accounts) *Providers {
	p.t.Helper()
	path := filepath.Join(p.dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		p.t.Fatal(err)
	}
	list, err := Load(path)
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := New(Config{Plugins: list, Dir: p.dir, Accounts: accounts, Limit: 5 * time.Second})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// entry is one plugin of a configuration.
func entry(name, extra string, match ...string) string {
	return fmt.Sprintf("- name: %s\n  matchImages: ['%s']\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: 1h\n%s", name, strings.Join(match, "', '"), extra)
}

// answers is the end of a script.
func answers(cacheKey, extra, auth string) string {
	return `cat <<END
{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"` + cacheKey + `"` + extra + `,"auth":{` + auth + `}}
END
`
}

func users(found []images.Credential) string {
	var out []string
	for _, c := range found {
		out = append(out, c.Auth.Username+":"+c.Auth.Password)
	}
	return strings.Join(out, " ")
}

func TestAsks(t *testing.T) {
	p := newPlugins(t)
	p.script("one", answers("Image", "", `"r.example":{"username":"$1","password":"$SECRET"},"r.example/team":{"username":"team","password":"p"},"s.example":{"username":"s","password":"p"}`))
	p.script("two", answers("Image", "", `"r.example":{"username":"two","password":"p"}`))
	p.script("three", answers("Image", "", ""))
	providers := p.load(head+entry("one", "  args: [user]\n  env: [{name: SECRET, value: geheim}]\n", "*.example")+
		entry("two", "", "r.example/team", "quay.io")+entry("three", "", "r.example:5000"), nil)
	got, err := providers.Lookup(t.Context(), "r.example/team/app:1", nil)
	if err != nil || users(got) != "team:p user:geheim two:p" {
		t.Errorf("%s, %v", users(got), err)
	}
	if got := p.asked("one"); !slices.Equal(got, []string{`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.example/team/app"}`}) {
		t.Errorf("asked %q", got)
	}
	if len(p.asked("three")) != 0 {
		t.Error("a plugin was asked about an image that it does not know")
	}
	for _, c := range got {
		if (c.Source != images.Source{}) {
			t.Errorf("what belongs to the node is said to be of %+v", c.Source)
		}
	}
	if got, err := providers.Lookup(t.Context(), "nginx", nil); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := providers.Lookup(t.Context(), "No Name", nil); err == nil {
		t.Error("no error")
	}
}

// TestOlderVersions asks plugins in the version that each is configured with, and wants them to
// answer in that.
func TestOlderVersions(t *testing.T) {
	p := newPlugins(t)
	older := func(text, version string) string { return strings.ReplaceAll(text, ".k8s.io/v1", ".k8s.io/"+version) }
	answer := answers("Image", "", `"r.example":{"username":"u","password":"p"}`)
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		p.script(version, older(answer, version))
		p.script("new-"+version, answer)
		got, err := p.load(older(head+entry(version, "", "r.example")+entry("new-"+version, "", "r.example"), version), nil).Lookup(t.Context(), "r.example/app", nil)
		if users(got) != "u:p" || err == nil || !strings.Contains(err.Error(), "want CredentialProviderResponse of credentialprovider.kubelet.k8s.io/"+version) {
			t.Errorf("%s: %s, %v", version, users(got), err)
		}
		if got := p.asked(version); !slices.Equal(got, []string{older(`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.example/app"}`, version)}) {
			t.Errorf("asked %q", got)
		}
	}
}

func TestCache(t *testing.T) {
	tests := []struct {
		name, key, extra string
		images           []string
		runs             int
	}{
		{"image", "Image", "", []string{"r.example/a:1", "r.example/a:2", "r.example/b"}, 2},
		{"registry", "Registry", "", []string{"r.example/a:1", "r.example/b", "s.example/a"}, 2},
		{"all", "Global", "", []string{"r.example/a:1", "r.example/b", "s.example/a"}, 1},
		{"for no time", "Global", `,"cacheDuration":"0s"`, []string{"r.example/a", "r.example/a"}, 2},
		{"for long", "Image", `,"cacheDuration":"6h"`, []string{"r.example/a", "r.example/a"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlugins(t)
			p.script("p", answers(tt.key, tt.extra, `"*.example":{"username":"u","password":"p"}`))
			providers := p.load(head+entry("p", "", "*.example"), nil)
			for _, image := range tt.images {
				if got, err := providers.Lookup(t.Context(), image, nil); err != nil || users(got) != "u:p" {
					t.Errorf("%s: %s, %v", image, users(got), err)
				}
			}
			if got := len(p.asked("p")); got != tt.runs {
				t.Errorf("asked %d times, want %d", got, tt.runs)
			}
		})
	}
}

// An answer is kept until it ends, and no longer.
func TestCacheEnds(t *testing.T) {
	p := newPlugins(t)
	p.script("p", answers("Image", "", `"*.example":{"username":"u","password":"p"}`))
	providers := p.load(head+entry("p", "", "*.example"), nil)
	look := func() {
		t.Helper()
		if _, err := providers.Lookup(t.Context(), "r.example/a", nil); err != nil {
			t.Error(err)
		}
	}
	look()
	pl := providers.plugins[0]
	for k, a := range pl.answers {
		a.at, a.until = a.at.Add(-2*time.Hour), a.until.Add(-2*time.Hour)
		pl.answers[k], pl.answers["old"] = a, a
	}
	look()
	if got := len(p.asked("p")); got != 2 || len(pl.answers) != 1 {
		t.Errorf("asked %d times, kept %d answers", got, len(pl.answers))
	}
}

// Who asks at the same time gets the same answer, even one that is not kept.
func TestAsksOnce(t *testing.T) {
	p := newPlugins(t)
	gate := filepath.Join(p.dir, "gate")
	p.script("p", "while ! test -e "+gate+"; do sleep 0.01; done\n"+answers("Image", `,"cacheDuration":"0s"`, `"r.example":{"username":"u","password":"p"}`))
	providers := p.load(head+entry("p", "", "r.example"), nil)
	var all sync.WaitGroup
	began := make(chan struct{}, 8)
	for range 8 {
		all.Go(func() {
			began <- struct{}{}
			if got, err := providers.Lookup(t.Context(), "r.example/a", nil); err != nil || users(got) != "u:p" {
				t.Errorf("%s, %v", users(got), err)
			}
		})
	}
	for range 8 {
		<-began
	}
	time.Sleep(50 * time.Millisecond) // all may wait for one by now; the test holds if they do not, too
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if got := len(p.asked("p")); got >= 8 {
		t.Errorf("asked %d times", got)
	}
}

func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"exit":         {"echo no metadata >&2\nexit 3\n", "credential provider p: exit status 3; it said: no metadata"},
		"long error":   {"head -c 100000 /dev/zero | tr '\\0' x >&2\nexit 1\n", "xxxx"},
		"no JSON":      {"echo geheim\n", "not in JSON"},
		"nothing":      {"", "not in JSON"},
		"version":      {`echo '{"kind":"CredentialProviderResponse","apiVersion":"v9"}'` + "\n", `want CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1`},
		"kind":         {`echo '{"kind":"X","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}'` + "\n", "its answer is"},
		"cacheKeyType": {answers("Pod", "", ""), `cacheKeyType "Pod"`},
		"too much":     {"cat /dev/zero\n", "more than 1048576 bytes"},
		"hangs":        {"sleep 1000\n", "no answer for 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlugins(t)
			p.script("p", tt.script)
			p.script("good", answers("Image", "", `"r.example":{"username":"u","password":"p"}`))
			providers := p.load(head+entry("p", "", "r.example")+entry("good", "", "r.example"), nil)
			got, err := providers.Lookup(t.Context(), "r.example/a", nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "geheim") || len(err.Error()) > 5000 {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
			if users(got) != "u:p" {
				t.Errorf("the other plugin's answer is lost: %v", got)
			}
		})
	}
}

// A plugin that is left is ended with what it has started.
func TestLeft(t *testing.T) {
	p := newPlugins(t)
	fifo := filepath.Join(p.dir, "pid")
	p.script("p", "sleep 1000 &\necho $! >"+fifo+".new\nmv "+fifo+".new "+fifo+"\nwait\n")
	providers := p.load(head+entry("p", "", "r.example"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := providers.Lookup(ctx, "r.example/a", nil)
		done <- err
	}()
	var pid []byte
	for deadline := time.Now().Add(4 * time.Second); len(pid) == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		pid, _ = os.ReadFile(fifo)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	proc := "/proc/" + strings.TrimSpace(string(pid)) + "/stat"
	for deadline := time.Now().Add(4 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(proc)
		if err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("what the plugin has started goes on: %s", stat)
		}
	}
}

// cluster has one service account.
type cluster struct {
	account *corev1.ServiceAccount
	tokens  int
	err     error
}

func (c *cluster) ServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if c.err != nil {
		return nil, c.err
	}
	a := c.account.DeepCopy()
	a.Namespace, a.Name = namespace, name
	return a, nil
}

func (c *cluster) Token(_ context.Context, pod *corev1.Pod, audience string) (string, error) {
	c.tokens++
	return "token-" + pod.Name + "-" + audience, nil
}

func TestTokens(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{"x.example/need": "n", "x.example/may": "m", "x.example/other": "o"}}}
	pod := func(name, account string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{ServiceAccountName: account}}
	}
	setup := func(t *testing.T, attributes string, c *cluster) (plugins, *Providers) {
		p := newPlugins(t)
		p.script("p", answers("Image", "", `"r.example":{"username":"u","password":"p"}`))
		return p, p.load(head+entry("p", "  tokenAttributes: {serviceAccountTokenAudience: aud, "+attributes+"}\n", "r.example"), c)
	}
	t.Run("per account", func(t *testing.T) {
		p, providers := setup(t, "cacheType: ServiceAccount, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [x.example/need], optionalServiceAccountAnnotationKeys: [x.example/may, x.example/missing]", &cluster{account: account})
		for _, pod := range []*corev1.Pod{pod("a", "sa"), pod("b", "sa"), pod("c", "another")} {
			got, err := providers.Lookup(t.Context(), "r.example/a", pod)
			if err != nil || users(got) != "u:p" || *got[0].Source.ServiceAccount != (images.Object{Namespace: "ns", Name: pod.Spec.ServiceAccountName, UID: "1"}) {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if got, err := providers.Lookup(t.Context(), "r.example/a", pod("static", "")); err != nil || len(got) != 0 {
			t.Errorf("a pod without an account: %v, %v", got, err)
		}
		asked := p.asked("p")
		if want := `"serviceAccountToken":"token-a-aud","serviceAccountAnnotations":{"x.example/may":"m","x.example/need":"n"}}`; len(asked) != 2 || !strings.HasSuffix(asked[0], want) {
			t.Errorf("asked %q, want %s", asked, want)
		}
	})
	t.Run("per token", func(t *testing.T) {
		p, providers := setup(t, "cacheType: Token, requireServiceAccount: false", &cluster{account: account})
		for _, pod := range []*corev1.Pod{pod("a", "sa"), pod("a", "sa"), pod("b", "sa"), pod("static", "")} {
			if got, err := providers.Lookup(t.Context(), "r.example/a", pod); err != nil || users(got) != "u:p" {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if asked := p.asked("p"); len(asked) != 3 || strings.Contains(asked[2], "oken\"") {
			t.Errorf("asked %q", asked)
		}
	})
	t.Run("an annotation is missing", func(t *testing.T) {
		p, providers := setup(t, "cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [x.example/none]", &cluster{account: account})
		if _, err := providers.Lookup(t.Context(), "r.example/a", pod("a", "sa")); err == nil || !strings.Contains(err.Error(), "service account ns/sa does not have the annotation x.example/none") {
			t.Error(err)
		}
		if len(p.asked("p")) != 0 {
			t.Error("the plugin was asked")
		}
	})
	t.Run("no API server", func(t *testing.T) {
		_, providers := setup(t, "cacheType: Token, requireServiceAccount: true", &cluster{err: errors.New("refused")})
		if _, err := providers.Lookup(t.Context(), "r.example/a", pod("a", "sa")); err == nil || !strings.Contains(err.Error(), "get service account ns/sa: refused") {
			t.Error(err)
		}
	})
}
