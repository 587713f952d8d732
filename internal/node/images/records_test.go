package images

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// asks tells whether a pod gets an image that is present without asking the
// registry for it, which refuses.
func asks(t *testing.T, m *Manager, r *registry, req Request) bool {
	t.Helper()
	r.took()
	m.failures.last = map[attempt]*failure{}
	req.Policy = corev1.PullIfNotPresent
	_, err := m.Ensure(t.Context(), req)
	asked := len(r.took()) > 0
	if asked == (err == nil) {
		t.Fatalf("asked the registry: %v, and yet: %v", asked, err)
	}
	return asked
}

// A private image that one pod's secret has brought is not for all others.
func TestPrivateImages(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry()
	r.private = "right"
	m := newManager(t, Config{Client: r, Records: dir})
	if _, err := m.Ensure(t.Context(), need("a", "i:1", "", password("s", "1", "right"))); err != nil {
		t.Fatal(err)
	}
	r.private = "changed" // so that every pull fails from now on
	check := func(m *Manager) {
		t.Helper()
		for what, tt := range map[string]struct {
			secrets []*corev1.Secret
			asks    bool
		}{
			"without a secret":                    {nil, true},
			"the same secret":                     {[]*corev1.Secret{password("s", "1", "right")}, false},
			"the same one, with a new password":   {[]*corev1.Secret{password("s", "1", "new")}, false},
			"another with the same content":       {[]*corev1.Secret{password("t", "2", "right")}, false},
			"another with other content":          {[]*corev1.Secret{password("t", "2", "wrong")}, true},
			"the same name, made anew":            {[]*corev1.Secret{password("s", "3", "wrong")}, true},
			"the same name, of no cluster":        {[]*corev1.Secret{password("s", "", "wrong")}, true},
			"several, of which the last is right": {[]*corev1.Secret{password("t", "2", "wrong"), password("u", "4", "right")}, false},
		} {
			if got := asks(t, m, r, need("b", "i:1", "", tt.secrets...)); got != tt.asks {
				t.Errorf("%s: asks the registry: %v", what, got)
			}
		}
	}
	check(m)
	check(newManager(t, Config{Client: r, Records: dir})) // a restart

	_, err := m.Ensure(t.Context(), need("b", "i:1", corev1.PullNever))
	if got, _ := reason(t, err); got != ErrImageNeverPull {
		t.Errorf("Never: %v", err)
	}

	// Once it came without credentials, it is for everybody.
	r.private = ""
	if _, err := m.Ensure(t.Context(), need("c", "i:1", corev1.PullAlways)); err != nil {
		t.Fatal(err)
	}
	r.private = "changed"
	for _, m := range []*Manager{m, newManager(t, Config{Client: r, Records: dir})} {
		if asks(t, m, r, need("d", "i:1", "")) {
			t.Error("a public image is kept from a pod")
		}
	}

	// And what is not here any more is forgotten.
	m.Prune(nil, time.Now().Add(time.Hour))
	if left, err := os.ReadDir(filepath.Join(dir, "pulled")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "pulling")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestVerification(t *testing.T) {
	for policy, asksFor := range map[Verification]map[string]bool{
		"":                           {"pulled": true, "preloaded": false, "listed/x": false},
		NeverVerify:                  {"pulled": false, "preloaded": false, "listed/x": false},
		NeverVerifyPreloadedImages:   {"pulled": true, "preloaded": false, "listed/x": false},
		NeverVerifyAllowlistedImages: {"pulled": true, "preloaded": true, "listed/x": false},
		AlwaysVerify:                 {"pulled": true, "preloaded": true, "listed/x": true},
	} {
		r := newRegistry()
		m := newManager(t, Config{Client: r, Verify: policy, Allowlist: []string{"docker.io/listed/*"}})
		r.private = "right"
		if _, err := m.Ensure(t.Context(), need("a", "pulled:1", "", password("s", "1", "right"))); err != nil {
			t.Fatal(err)
		}
		r.private = "changed"
		for image, want := range asksFor {
			r.present[image+":1"] = true
			if got := asks(t, m, r, need("b", image+":1", "")); got != want {
				t.Errorf("%s: %s asks the registry: %v", policy, image, got)
			}
		}
	}
	if _, err := New(Config{Verify: "Sometimes"}); err == nil || !strings.Contains(err.Error(), "AlwaysVerify") {
		t.Error(err)
	}
}

// An agent that was killed while it pulled does not take the image for one that
// was here before.
func TestKilledWhilePulling(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry()
	r.hang["i:1"] = true
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := newManager(t, Config{Client: r, Records: dir}).Ensure(ctx, need("a", "i:1", corev1.PullAlways)); err == nil {
		t.Fatal("pulled")
	}
	r.present["i:1"], r.present["other:1"] = true, true // the runtime went on by itself
	r.hang, r.private = nil, "right"
	m := newManager(t, Config{Client: r, Records: dir})
	if !asks(t, m, r, need("b", "i:1", "")) {
		t.Error("an image that nobody saw come is for everybody")
	}
	if asks(t, m, r, need("b", "other:1", "")) {
		t.Error("an image that was here is not for everybody")
	}
	if _, err := m.Ensure(t.Context(), need("c", "i:1", "", password("s", "1", "right"))); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "pulling")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestBrokenRecords(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry()
	r.private = "right"
	m := newManager(t, Config{Client: r, Records: dir})
	if _, err := m.Ensure(t.Context(), need("a", "i:1", "", password("s", "1", "right"))); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(dir + "/pulled/*")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if data, err := os.ReadFile(files[0]); err != nil || strings.Contains(string(data), "right") {
		t.Errorf("the record has the password: %s, %v", data, err)
	}
	for path, text := range map[string]string{files[0]: "{", dir + "/pulled/.x.tmp-1": "half"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var warned []string
	m = newManager(t, Config{Client: r, Records: dir, Warn: func(reason, message string) { warned = append(warned, reason+": "+message) }})
	if len(warned) != 1 || !strings.HasPrefix(warned[0], PullRecordsIgnored) || !strings.Contains(warned[0], filepath.Base(files[0])) || !strings.Contains(warned[0], "until they are pulled again") {
		t.Errorf("events %q", warned)
	}
	m.Prune([]string{"id of i:1"}, time.Now().Add(time.Hour))
	r.private = "changed"
	if !asks(t, m, r, need("b", "i:1", "")) {
		t.Error("with a broken record the image is for everybody")
	}
	r.private = "right"
	if _, err := m.Ensure(t.Context(), need("a", "i:1", "", password("s", "1", "right"))); err != nil {
		t.Error(err)
	}
	r.private = "changed"
	if asks(t, newManager(t, Config{Client: r, Records: dir}), r, need("a", "i:1", "", password("s", "1", "right"))) {
		t.Error("the record was not mended")
	}
	if _, err := New(Config{Records: files[0]}); err == nil {
		t.Error("a folder that is a file is taken")
	}
}

// Where records cannot be written, a restart asks for the image again; and what
// cannot even be begun fails.
func TestRecordsNotWritten(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry()
	r.private = "right"
	var warned []string
	m := newManager(t, Config{Client: r, Records: dir, Warn: func(reason, message string) { warned = append(warned, reason+": "+message) }})
	if err := os.Mkdir(filepath.Join(dir, "pulled", base("id of i:1")), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := m.Ensure(t.Context(), need("a", "i:1", corev1.PullAlways, password("s", "1", "right"))); err != nil {
			t.Fatal(err)
		}
	}
	if len(warned) != 1 || !strings.HasPrefix(warned[0], PullNotRecorded) || !strings.Contains(warned[0], "it may have to be pulled again after a restart") {
		t.Errorf("events %q", warned)
	}
	if err := os.Remove(filepath.Join(dir, "pulled", base("id of i:1"))); err != nil {
		t.Fatal(err)
	}
	r.private = "changed"
	if !asks(t, newManager(t, Config{Client: r, Records: dir}), r, need("b", "i:1", "")) {
		t.Error("after a restart the image is for everybody")
	}
	r.private = "right"
	if _, err := m.Ensure(t.Context(), need("a", "i:1", corev1.PullAlways, password("s", "1", "right"))); err != nil {
		t.Fatal(err)
	}
	r.private = "changed"
	for _, m := range []*Manager{m, newManager(t, Config{Client: r, Records: dir})} {
		if !asks(t, m, r, need("b", "i:1", "")) || asks(t, m, r, need("a", "i:1", "", password("s", "1", "right"))) {
			t.Error("what was not written is not written later")
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "pulling")); err != nil {
		t.Fatal(err)
	}
	_, err := m.Ensure(t.Context(), need("b", "other:1", ""))
	if got, _ := reason(t, err); got != ErrImagePull || !strings.Contains(err.Error(), "note that image docker.io/library/other:1 is pulled") {
		t.Error(err)
	}
}

// What a service account's token has brought is for that account.
func TestServiceAccounts(t *testing.T) {
	r := newRegistry()
	r.private = "right"
	account := func(name string) static {
		return static{{Auth{Password: "right"}, Source{ServiceAccount: &Object{"ns", name, "1"}}}}
	}
	m := newManager(t, Config{Client: r, Credentials: account("mine")})
	if _, err := m.Ensure(t.Context(), need("a", "i:1", "")); err != nil {
		t.Fatal(err)
	}
	r.private = "changed"
	for _, tt := range []struct {
		from static
		asks bool
	}{{account("mine"), false}, {account("other"), true}, {static(nil), true}} {
		m.cfg.Credentials = tt.from
		if got := asks(t, m, r, need("b", "i:1", "")); got != tt.asks {
			t.Errorf("%+v asks the registry: %v", tt.from, got)
		}
	}
}
