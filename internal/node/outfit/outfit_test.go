package outfit

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/holds"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/volume"
)

// here has every image, whose user is 9.
type here struct{}

func (here) Ensure(_ context.Context, r images.Request) (images.Image, error) {
	return images.Image{Ref: "id of " + r.Image, Info: &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 9}}}, nil
}

// TestConfigure has the image's user beside a group, without which runtimes take none.
func TestConfigure(t *testing.T) {
	group := int64(7)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{RunAsGroup: &group}}}}}
	dirs := volume.Dirs{Disk: t.TempDir(), Memory: t.TempDir()}
	spec := &podspec.Context{Pod: pod, LogDir: t.TempDir(), Node: podspec.Node{IPs: podspec.Fixed([]string{"10.0.0.1"})}, IPs: []string{"10.1.0.2"}}
	set, err := volume.Prepare(t.Context(), spec, dirs, volume.Around{})
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{
		Spec: spec, Dirs: dirs, Images: here{}, Volumes: func() *volume.Set { return set },
		Given:  func(context.Context, *corev1.Container) (podspec.Given, error) { return podspec.Given{}, nil },
		Event:  func(container, kind, reason, message string) { t.Log(container, kind, reason, message) },
		Slowly: func(do func()) { do() },
	})
	cfg, err := p.Configure(t.Context(), Attempt{Container: &pod.Spec.Containers[0]})
	if err != nil {
		t.Fatal(err)
	}
	sc := cfg.GetLinux().GetSecurityContext()
	if cfg.GetImage().GetImage() != "id of i" || sc.GetRunAsGroup().GetValue() != 7 || sc.GetRunAsUser().GetValue() != 9 {
		t.Errorf("image %v, user %v, group %v", cfg.GetImage(), sc.GetRunAsUser(), sc.GetRunAsGroup())
	}
}

// lacks has no image, because of an error.
type lacks struct{ error }

func (l lacks) Ensure(context.Context, images.Request) (images.Image, error) {
	return images.Image{}, l.error
}

// TestNoRoomForImage says in event and status what to do where an image does not fit.
func TestNoRoomForImage(t *testing.T) {
	const full = "write layer: no space left on device"
	for _, err := range []error{&images.Error{Reason: images.ErrImagePull, Message: full}, errors.New(full)} {
		said := full
		p := New(Config{
			Spec: &podspec.Context{Pod: &corev1.Pod{}}, Images: lacks{err},
			Event:    func(_, _, _, message string) { said = message },
			Reworded: func(full string) string { return full },
			Slowly:   func(do func()) { do() },
		})
		var waits *holds.NotStarted
		_, got := p.Configure(t.Context(), Attempt{Container: &corev1.Container{Name: "c", Image: "i"}})
		if !errors.As(got, &waits) || !strings.HasPrefix(waits.Message, full+"; make room") {
			t.Errorf("%v waits for %v", err, got)
		}
		if errors.As(err, new(*images.Error)) && said != waits.Message {
			t.Errorf("%v is told as %q", err, said)
		}
	}
}
