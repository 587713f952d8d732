package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"fairlead.run/api/v1alpha1"
)

// The names in the output folder.
const (
	layoutFolder = "layout"
	digestsFile  = "digests"
)

// write writes all images into one layout, each into an archive of its own, and
// which digests they have.
func write(output, registry string, made []product) error {
	digests := ""
	all := v1.ImageIndex(empty.Index)
	for i := range made {
		m := &made[i]
		all = mutate.AppendManifests(all, m.entry())
		digests += fmt.Sprintf("%s:%s %s\n", m.name, m.version, m.digest)
		if err := m.writeArchive(output); err != nil {
			return fmt.Errorf("write archive of %s: %w", m.name, err)
		}
		if err := m.writeObject(output, registry); err != nil {
			return fmt.Errorf("write RuntimePayload of %s: %w", m.name, err)
		}
	}
	if err := writeLayout(filepath.Join(output, layoutFolder), all); err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	return os.WriteFile(filepath.Join(output, digestsFile), []byte(digests), 0o644)
}

// entry is the image in an index.json.
func (p *product) entry() mutate.IndexAddendum {
	return mutate.IndexAddendum{Add: p.index, Descriptor: v1.Descriptor{Annotations: map[string]string{
		ocispec.AnnotationRefName:  p.version,
		"io.containerd.image.name": p.name + ":" + p.version,
	}}}
}

// writeObject writes what a cluster is told of a payload as NAME.yaml.
func (p *product) writeObject(output, registry string) error {
	if p.payload == nil {
		return nil
	}
	text, err := yaml.Marshal(v1alpha1.RuntimePayload{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RuntimePayload"},
		ObjectMeta: metav1.ObjectMeta{Name: p.payload.Type},
		Spec:       v1alpha1.RuntimePayloadSpec{Image: repository(registry, p.name) + "@" + p.digest.String(), Manifest: *p.payload},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(output, p.name+".yaml"), text, 0o644)
}

func repository(registry, name string) string {
	if registry == "" {
		return name
	}
	return strings.TrimSuffix(registry, "/") + "/" + name
}

func writeLayout(folder string, index v1.ImageIndex) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	_, err := layout.Write(folder, index)
	return err
}

// writeArchive writes a layout of the image alone as NAME.tar.
func (p *product) writeArchive(output string) error {
	folder, err := os.MkdirTemp(output, ".archive-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := writeLayout(folder, mutate.AppendManifests(empty.Index, p.entry())); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(output, p.name+".tar"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := archive(f, folder); err != nil {
		return err
	}
	return f.Close()
}

func archive(w io.Writer, folder string) error {
	files := layer{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[inside(folder, path)] = source{file: path, mode: 0o644}
		}
		return err
	})
	if err != nil {
		return err
	}
	return writeTar(w, files)
}

// push writes the images to a registry, with the credentials that container engines
// keep for it.
func push(ctx context.Context, registry string, made []product) error {
	for i := range made {
		m := &made[i]
		tag, err := name.NewTag(repository(registry, m.name)+":"+m.version, name.StrictValidation)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(tag, m.index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push %s: %w", tag, err)
		}
		fmt.Printf("%s@%s\n", tag.Repository, m.digest)
	}
	return nil
}
