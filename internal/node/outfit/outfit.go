// Package outfit has what the containers of a pod are made with: their images, what they
// have mounted, the files that the node adds, and the configuration that a runtime is
// given. When a container is made, and what becomes of it, is for others.
package outfit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/holds"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/volume"
)

// Images has the images of pods here.
type Images interface {
	// Ensure has an image here. A failure that is an *images.Error says what the
	// container waits for, and until when.
	Ensure(context.Context, images.Request) (images.Image, error)
}

// Config is what a Pod works with. All of it is required.
type Config struct {
	Spec   *podspec.Context
	Dirs   volume.Dirs
	Images Images
	// Volumes gives those of the pod. It is not called before they are there.
	Volumes func() *volume.Set
	// Given is what a container has beside its spec.
	Given func(context.Context, *corev1.Container) (podspec.Given, error)
	// Event tells what happened to a container.
	Event func(container, kind, reason, message string)
	// Reworded is how people are told of an error that says so.
	Reworded func(text string) string
	// Slowly does what may take long.
	Slowly func(func())
}

// Pod outfits the containers of one pod. One goroutine uses it.
type Pod struct {
	Config
	pulled map[string]string // the runtime's names of images that volumes show, by those in the spec
}

// New makes a Pod, which tells its Spec the names of images that it has pulled.
func New(c Config) *Pod {
	p := &Pod{Config: c, pulled: map[string]string{}}
	c.Spec.Pulled = func(image string) string { return p.pulled[image] }
	return p
}

// Attempt is what is known of a container before it is made.
type Attempt struct {
	Container *corev1.Container
	Number    uint32
	Target    string // id of the container that an ephemeral one looks into
	Record    podspec.Record
	Sandbox   *runtimeapi.PodSandboxConfig // that it is to be in
}

// Configure has the image here, and makes the configuration of an attempt. An error that is
// a *holds.NotStarted is the container's own, and was told of.
func (p *Pod) Configure(ctx context.Context, a Attempt) (*runtimeapi.ContainerConfig, error) {
	ct := a.Container
	image, err := p.image(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := podspec.CheckNonRoot(p.Spec.Pod, ct, image.Info); err != nil {
		return nil, p.misconfigured(ct, err)
	}
	mounts, err := p.mounts(ctx, ct, a.Number)
	if err != nil {
		return nil, p.misconfigured(ct, err)
	}
	given, err := p.Given(ctx, ct)
	if err != nil {
		return nil, p.misconfigured(ct, err)
	}
	cfg, err := podspec.Container(ctx, p.Spec, podspec.Attempt{
		Container: ct, Number: a.Number, Image: image.Ref, Info: image.Info, Mounts: mounts, Given: given, Target: a.Target, Record: a.Record,
	})
	if err != nil {
		return nil, p.misconfigured(ct, err)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(p.Spec.LogDir, cfg.GetLogPath())), 0o755); err != nil {
		return nil, p.misconfigured(ct, fmt.Errorf("make the log folder: %w", err))
	}
	return cfg, nil
}

func (p *Pod) misconfigured(ct *corev1.Container, err error) error {
	text := p.Reworded(err.Error())
	p.Event(ct.Name, corev1.EventTypeWarning, "Failed", "container "+ct.Name+": "+strings.TrimPrefix(text, "container "+ct.Name+": ")+hostpath.Advice(err))
	return &holds.NotStarted{Reason: holds.ConfigError, Message: text}
}
