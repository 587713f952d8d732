package images

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestPullsAreTimed counts what each pod has waited for its image, and no pull that failed.
func TestPullsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.slow, r.size = 2*time.Second, 10<<20+1
		m := newManager(t, Config{Client: r, Parallel: 1})
		var all sync.WaitGroup
		for _, image := range []string{"a:1", "a:1", "b:1"} {
			all.Go(func() {
				if _, err := m.Ensure(t.Context(), need("p", image, corev1.PullIfNotPresent)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if _, err := m.Ensure(t.Context(), need("p", "a:1", corev1.PullIfNotPresent)); err != nil {
			t.Error(err)
		}
		r.fail = errors.New("no")
		if _, err := m.Ensure(t.Context(), need("p", "c:1", corev1.PullAlways)); err == nil {
			t.Error("a pull that fails has not")
		}
		var out strings.Builder
		if err := m.Metrics(&out); err != nil {
			t.Fatal(err)
		}
		const name, size = "kubelet_image_pull_duration_seconds", `{image_size_in_bytes="10MB-100MB"`
		for _, line := range []string{
			name + "_bucket" + size + `,le="1"} 0`, name + "_bucket" + size + `,le="5"} 3`, name + "_bucket" + size + `,le="3600"} 3`,
			name + "_sum" + size + "} 8", name + "_count" + size + "} 3",
		} {
			if !strings.Contains(out.String(), line+"\n") {
				t.Errorf("no %s in\n%s", line, &out)
			}
		}
	})
}

func TestSizeNames(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 500 << 20: "100MB-500MB", 1 << 30: "500MB-1GB", 1<<30 + 1: "1GB-5GB",
		100 << 30: "60GB-100GB", 100<<30 + 1: "GT100GB",
	} {
		if got := sizeName(bytes); got != want {
			t.Errorf("%d is %s, want %s", bytes, got, want)
		}
	}
}
