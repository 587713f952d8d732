package filter

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const plain = `{"ociVersion":"1.1.0","annotations":{"a":"b"},"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ERRNO"}},"x":[1]}`

func write(t *testing.T, name, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// annotated is the annotation that Give leaves in a bundle.
func annotated(t *testing.T, c *Cache, config, program string) (Key, string) {
	t.Helper()
	dir := write(t, "config.json", config)
	k, err := c.Give(dir, program)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		Annotations map[string]string
		X           []int
	}
	if err := json.Unmarshal(data, &b); err == nil && strings.Contains(config, `"x":[`) && (len(b.X) != 1 || b.Annotations["a"] != "b") {
		t.Errorf("the rest of the bundle was changed: %s", data)
	}
	return k, b.Annotations[annotation]
}

func TestSecondContainerGetsTheFilterOfTheFirst(t *testing.T) {
	var c Cache
	k, got := annotated(t, &c, plain, "crun 1")
	if k == (Key{}) || got != "" {
		t.Fatalf("the first got %q", got)
	}
	c.Take(k, write(t, compiled, "12345678"))
	k, got = annotated(t, &c, plain, "crun 1")
	if want := base64.StdEncoding.EncodeToString([]byte("12345678")); got != want || k != (Key{}) {
		t.Errorf("the second got %q, want %q", got, want)
	}
}

// A filter must never be given to whoever asks for another one.
func TestOtherFiltersAreCompiled(t *testing.T) {
	var c Cache
	k, _ := annotated(t, &c, plain, "crun 1")
	c.Take(k, write(t, compiled, "12345678"))
	for name, tt := range map[string]struct{ config, program string }{
		"another filter":    {strings.Replace(plain, "ERRNO", "ALLOW", 1), "crun 1"},
		"another program":   {plain, "crun 2"},
		"none":              {`{"linux":{}}`, "crun 1"},
		"a listener":        {`{"linux":{"seccomp":{"listenerPath":"/s"}}}`, "crun 1"},
		"no specification":  {`{`, "crun 1"},
		"one of the user's": {`{"annotations":{"run.oci.seccomp_bpf_data":""},"linux":{"seccomp":{"defaultAction":"x"}}}`, "crun 1"},
	} {
		if _, got := annotated(t, &c, tt.config, tt.program); got != "" {
			t.Errorf("%s got %q", name, got)
		}
	}
}

func TestWhatIsNoFilterIsNotTaken(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "not whole": "1234567", "too large": strings.Repeat("x", largest+instruction),
	} {
		var c Cache
		k, _ := annotated(t, &c, plain, "crun 1")
		c.Take(k, write(t, compiled, content))
		if _, got := annotated(t, &c, plain, "crun 1"); got != "" {
			t.Errorf("%s was taken", name)
		}
		c.Take(k, t.TempDir()) // gone
		c.Take(Key{}, write(t, compiled, "12345678"))
		if len(c.known) > 0 {
			t.Errorf("%s: something was taken: %v", name, c.known)
		}
	}
}
