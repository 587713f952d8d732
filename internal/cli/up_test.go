package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/machine"
)

// TestManifestsAreNotMade leaves a folder that is not there to the source of it, which knows
// whether it was there before.
func TestManifestsAreNotMade(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "manifests")
	a := &app{}
	c, err := a.manifests(&upFlags{manifests: folder, address: addressFlags{every: time.Minute}})
	if err != nil || c.Folder != folder {
		t.Errorf("%q, %v", c.Folder, err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("it was made: %v", err)
	}
}

// TestHerald says once what is tried again and again, and each change.
func TestHerald(t *testing.T) {
	var out bytes.Buffer
	h, p := newHerald(&out), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	pending, runs := corev1.PodStatus{Phase: corev1.PodPending}, corev1.PodStatus{Phase: corev1.PodRunning}
	for range 3 {
		h.Changed(p, pending, "")
		h.Event(p, corev1.EventTypeWarning, "FailedMount", "ConfigMap later is missing")
		h.Event(p, corev1.EventTypeNormal, "Pulled", "Image x")
		h.Changed(p, pending, "ConfigMap later is missing")
	}
	h.Changed(p, runs, "")
	h.Changed(p, pending, "")
	for range 2 {
		h.Event(p, corev1.EventTypeWarning, "FailedMount", "ConfigMap later is missing")
		h.Event(p, corev1.EventTypeNormal, "Killing", "It is ended")
	}
	h.Gone(p)
	h.Event(p, corev1.EventTypeWarning, "FailedMount", "ConfigMap later is missing")
	const want = "pod web: Pending\npod web: FailedMount: ConfigMap later is missing\npod web: Pending: ConfigMap later is missing\n" +
		"pod web: Running, 0 of 0 ready\npod web: Pending\n" +
		"pod web: FailedMount: ConfigMap later is missing\npod web: Killing: It is ended\npod web: Killing: It is ended\npod web: removed\npod web: FailedMount: ConfigMap later is missing\n"
	if out.String() != want {
		t.Error(out.String())
	}
}

// TestSecondUp changes nothing where another one keeps the pods: no folder is made.
func TestSecondUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run pods")
	}
	dir := t.TempDir()
	release, err := machine.Lock(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	config := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(config, []byte("root = '"+dir+"/lib'\nstate = '"+dir+"/run'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, config: []string{config}}
	if err := a.up(t.Context(), &upFlags{manifests: filepath.Join(dir, "manifests"), address: addressFlags{every: time.Minute}}); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("the folder has %v, %v", left, err)
	}
	if left, err = os.ReadDir(filepath.Join(dir, "run")); err != nil || len(left) != 1 {
		t.Errorf("the state folder has %v, %v", left, err)
	}
}
