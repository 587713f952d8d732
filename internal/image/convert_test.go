package image_test

import (
	"reflect"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/image"
	"fairlead.run/internal/pod"
)

func TestPodConfig(t *testing.T) {
	img := image.Image{ID: "sha256:1", RepoDigests: []string{"a@sha256:2"}, Config: ocispec.ImageConfig{
		User: "u", Entrypoint: []string{"e"}, Cmd: []string{"c"}, Env: []string{"A=1"}, WorkingDir: "/w",
		StopSignal: "SIGINT", Volumes: map[string]struct{}{"/b": {}, "/a": {}},
	}}
	want := pod.ImageConfig{
		User: "u", Entrypoint: []string{"e"}, Cmd: []string{"c"}, Env: []string{"A=1"}, WorkingDir: "/w",
		StopSignal: "SIGINT", Volumes: []string{"/a", "/b"},
	}
	if got := img.PodConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	// Every field of the domain's form has to come from somewhere.
	for v, i := reflect.ValueOf(img.PodConfig()), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not filled in", v.Type().Field(i).Name)
		}
	}
	if got := img.ContainerImage(); !reflect.DeepEqual(got, pod.ContainerImage{ID: "sha256:1", Ref: "a@sha256:2", Name: "a@sha256:2"}) {
		t.Errorf("%+v", got)
	}
	img.RepoTags = []string{"a:1", "a:2"}
	if got := img.ContainerImage(); got.Name != "a:1" {
		t.Errorf("%+v", got)
	}
	img.RepoDigests = nil
	if got := img.ContainerImage(); got.Ref != "sha256:1" {
		t.Errorf("%+v", got)
	}
}
