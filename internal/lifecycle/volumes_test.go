package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// withVolumes is a container whose second and third mounts show images.
func withVolumes(name string, images ...string) pod.ContainerConfig {
	cfg := containerConfig(name)
	cfg.Mounts = []pod.Mount{{ContainerPath: "/host", HostPath: "/"}}
	for _, image := range images {
		cfg.Mounts = append(cfg.Mounts, pod.Mount{ContainerPath: "/" + image, ReadOnly: true, Image: &pod.ImageSpec{Image: image}})
	}
	return cfg
}

// The images that mounts show are held and recorded, mounted with the container's
// label, and the same request finds the same container.
func TestImageVolumes(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	id, err := c.RunPod(ctx, podConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	ctr, err := c.CreateContainer(ctx, id, withVolumes("a", "volume-a", "volume-b"))
	if err != nil {
		t.Fatal(err)
	}
	got := state(t, c, ctr)
	want := []string{"", "sha256:volume-a", "sha256:volume-b"}
	if !slices.Equal(got.Image.Volumes, want) || got.Image.ID != "sha256:1" {
		t.Errorf("the record names %v", got.Image)
	}
	if got.Config.Mounts[1].HostPath != "" {
		t.Errorf("the record has a path that is this daemon's own: %+v", got.Config.Mounts[1])
	}
	for _, mount := range h.mountsOf(ctr) {
		if want := map[string]string{"/host": "/", "/volume-a": "/volume-1", "/volume-b": "/volume-2"}[mount.ContainerPath]; mount.HostPath != want {
			t.Errorf("the bundle is told %+v, want %s", mount, want)
		}
	}
	if l := h.labels[string(ctr)]; len(l) != 5 || l[0] != l[1] || l[0] != l[2] {
		t.Errorf("labels of the root file system and the images: %v", l)
	}
	if again, err := c.CreateContainer(ctx, id, withVolumes("a", "volume-a", "volume-b")); again != ctr || err != nil {
		t.Errorf("the same request: %s, %v", again, err)
	}
	kill()
	c, kill = boot(t, h, d)
	defer kill()
	eventually(t, "the images in use are told", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Equal(h.uses[ctr], []string{"sha256:1", "sha256:volume-a", "sha256:volume-b"})
	})
	if err := c.RemovePod(ctx, id); err != nil {
		t.Fatal(err)
	}
	if left := h.left(); len(left) > 0 {
		t.Error(left)
	}
}

func TestImageVolumeFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		step, image string
		kind        error
		words       []string
	}{
		"missing":       {"", "missing", errdefs.ErrNotFound, []string{"ImageVolumeMountFailed: mounts[1].image"}},
		"not mountable": {"root.mount-image", "volume", errBoom, []string{"ImageVolumeMountFailed: mounts[1].image", "mount image volumes"}},
		"no bundle":     {"bundle.write", "volume", errBoom, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			c, kill := boot(t, h, newDisk())
			defer kill()
			id, err := c.RunPod(ctx, podConfig("web"), "")
			if err != nil {
				t.Fatal(err)
			}
			before := h.left()
			h.set(func() { h.fail[tt.step] = errBoom })
			_, err = c.CreateContainer(ctx, id, withVolumes("a", tt.image))
			if !errors.Is(err, tt.kind) {
				t.Fatal(err)
			}
			for _, w := range tt.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in %v", w, err)
				}
			}
			if left := h.left(); !slices.Equal(left, before) {
				t.Errorf("left %v, before %v", left, before)
			}
			if r, err := c.FindPod(string(id)); err != nil || len(r.Containers) > 0 {
				t.Errorf("the record of a container is left: %v", err)
			}
		})
	}
}
