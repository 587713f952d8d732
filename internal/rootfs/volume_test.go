package rootfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// volumes mounts the root file system of a container of that pod, and an image
// of one layer and one of three for its second and fourth mounts.
func volumes(t *testing.T, of *pod.Record) (r *Roots, id pod.ContainerID, requests []pod.VolumeRequest) {
	t.Helper()
	one, three := newSpec(t, 1), newSpec(t, 3)
	r, err := New(t.TempDir(), t.TempDir(), plain)
	if err != nil {
		t.Fatal(err)
	}
	id = pod.NewContainerID()
	if _, err = r.Mount(t.Context(), of, id, three.Lower, ""); errors.Is(err, errdefs.ErrUnimplemented) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	return r, id, []pod.VolumeRequest{{Container: id, Index: 1, Lower: one.Lower}, {Container: id, Index: 3, Lower: three.Lower}}
}

func mountVolume(t *testing.T, r *Roots, of *pod.Record, v pod.VolumeRequest) string {
	t.Helper()
	at, err := r.MountImage(t.Context(), of, v)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestMountImage(t *testing.T) {
	of := &pod.Record{}
	r, id, requests := volumes(t, of)
	for _, v := range requests {
		at := mountVolume(t, r, of, v)
		if again := mountVolume(t, r, of, v); again != at {
			t.Errorf("a second time at %s, not %s", again, at)
		}
		if got := readFile(t, filepath.Join(at, "all")); got != "0" {
			t.Errorf("file of layer %s on top, want the first one's", got)
		}
		if err := os.WriteFile(filepath.Join(at, "new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing in an image: %v", err)
		}
	}
	if _, err := r.MountImage(t.Context(), of, pod.VolumeRequest{Container: "..", Lower: requests[0].Lower}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a container that has no folder: %v", err)
	}
	for range 2 {
		if err := r.Unmount(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := List(r.state); err != nil || len(left) > 0 {
		t.Errorf("left mounted: %v, %v", left, err)
	}
	if got := readFile(t, filepath.Join(requests[0].Lower[0], "all")); got != "0" {
		t.Errorf("the layer has %q", got)
	}
}

// In a pod with a user namespace the files of an image belong to the pod's ids.
func TestMountImageMapped(t *testing.T) {
	m := mapping(t)
	of := &pod.Record{Sandbox: pod.Sandbox{UserNS: m.UserNS}}
	of.Config.Security.Namespaces.User = m.IDs
	r, _, requests := volumes(t, of)
	for _, v := range requests {
		wantOwner(t, filepath.Join(mountVolume(t, r, of, v), "all"), 50000, 60000)
	}
}

// An audit wants the images that mounts show, and can mount them again as long
// as the container has not started.
func TestKeeperOfVolumes(t *testing.T) {
	of := &pod.Record{}
	r, id, requests := volumes(t, of)
	c := &pod.Container{ID: id, State: pod.Created, Image: pod.ContainerImage{ID: "own", Volumes: []string{"", "one", "", "three"}}}
	c.Config.Mounts = []pod.Mount{{HostPath: "/"}, {Image: &pod.ImageSpec{Image: "one"}}, {HostPath: "/"}, {Image: &pod.ImageSpec{Image: "three"}}}
	of.Containers = []*pod.Container{c}
	k := Keeper{
		Roots: r,
		Lower: func(_ context.Context, _ *pod.Container, image string) ([]string, error) {
			return map[string][]string{"one": requests[0].Lower, "three": requests[1].Lower}[image], nil
		},
		Label: func(*pod.Record, *pod.Container) (string, error) { return "", nil },
	}
	wants := k.Wants(of)
	if len(wants) != 4 {
		t.Fatalf("it wants %v", wants)
	}
	for i, v := range requests {
		h := wants[2+i]
		if err := k.Restore(t.Context(), of, h); err != nil {
			t.Fatal(err)
		}
		if at := mountVolume(t, r, of, v); at != h.Name {
			t.Errorf("it wants %s, and the mount is %s", h.Name, at)
		}
		if got := readFile(t, filepath.Join(h.Name, "all")); got != "0" {
			t.Errorf("it mounted layer %s", got)
		}
	}
	held, err := k.Held(t.Context(), nil)
	if err != nil || len(held) != 4 {
		t.Errorf("it has %v, %v", held, err)
	}
	c.State = pod.Running
	if err := k.Restore(t.Context(), of, wants[2]); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("under a container that runs: %v", err)
	}
}

func TestLayerPath(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	r, err := New(t.TempDir(), root, plain)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.LayerPath(); got != root {
		t.Errorf("before the first container: %s", got)
	}
	own := filepath.Join(root, "containers")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := r.LayerPath(); got != root {
		t.Errorf("on one file system: %s", got)
	}
	if err := unix.Mount("none", own, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(own, unix.MNT_DETACH) }()
	if got := r.LayerPath(); got != own {
		t.Errorf("on a file system of their own: %s", got)
	}
}
