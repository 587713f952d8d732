package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
)

// image is what an image is to have.
type image struct {
	name, version string
	title         string
	user          string
	entrypoint    []string
	// layers are by architecture; those that are of the same files are stored once.
	layers map[string][]layer
	// payload is what a payload's image has in it.
	payload *payload.RuntimePayload
}

// layer is files by their path in the image.
type layer map[string]source

// source is a file on this machine, or text.
type source struct {
	file string
	text []byte
	mode int64
}

// nobody is the user of the image of fairlead, which needs no right on its node.
const nobody = "65532:65532"

// describe says which images the options ask for.
func describe(o options) ([]image, error) {
	out := []image{{
		name: "fairlead", version: o.version, title: "Fairlead: webhook and operator", user: nobody,
		entrypoint: []string{"/fairlead"}, layers: map[string][]layer{},
	}}
	for _, arch := range o.archs {
		out[0].layers[arch] = []layer{program(o.programs, arch, "fairlead"), program(o.programs, arch, "fairlead-operator")}
	}
	for _, dir := range o.payloads {
		tree, err := readPayload(dir, o.archs)
		if err != nil {
			return nil, fmt.Errorf("read payload %s: %w", dir, err)
		}
		one, err := describePayload(o, tree)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// program is a layer of one program. That of fairlead is in all images.
func program(programs, arch, name string) layer {
	return layer{name: {file: filepath.Join(programs, arch, name), mode: 0o755}}
}

// describePayload is the image that installs a payload: the program, which is the
// installer, and the payload in the root, each in a layer of its own. Every
// architecture has the whole manifest and its own files.
func describePayload(o options, tree *payloadTree) (image, error) {
	p := &tree.manifest
	manifest, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return image{}, err
	}
	out := image{
		name: "fairlead-" + p.Type, version: o.version + "-" + strings.ReplaceAll(p.Version, "+", "_"),
		title: "Fairlead: installer of " + p.Type + " " + p.Version, user: "0:0",
		entrypoint: []string{"/fairlead", "install"}, layers: map[string][]layer{}, payload: p,
	}
	for _, arch := range p.Architectures {
		files := layer{payload.ManifestName: {text: append(manifest, '\n'), mode: 0o644}}
		for name, from := range tree.sources {
			if tree.arch[name] == "" || tree.arch[name] == arch {
				files[name] = from
			}
		}
		out.layers[arch] = []layer{program(o.programs, arch, "fairlead"), files}
	}
	return out, nil
}
