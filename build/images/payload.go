package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/json"

	payload "fairlead.run/api/payload/v1alpha1"
)

// The folders of a payload that are not named by architecture: files for all of
// them, and configs.
const (
	common  = "all"
	configs = "configs"
)

// payloadTree is a payload on this machine.
type payloadTree struct {
	manifest payload.RuntimePayload
	sources  map[string]source // by path in the image
	arch     map[string]string // of a source, "" for all
}

// readPayload reads a folder with payload.json, which lacks only its files and
// configs, and these: files for all architectures in the folder all, the others in
// folders named by architecture, and configs in a folder of that name. They are
// listed and hashed here, so that nobody has to write that down. Of the
// architectures that the payload has, those are taken that are asked for.
func readPayload(dir string, archs []string) (*payloadTree, error) {
	text, err := os.ReadFile(filepath.Join(dir, payload.ManifestName))
	if err != nil {
		return nil, err
	}
	t := &payloadTree{sources: map[string]source{}, arch: map[string]string{}}
	strict, err := json.UnmarshalStrict(text, &t.manifest)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("read %s: %w", payload.ManifestName, err)
	}
	if len(t.manifest.Files)+len(t.manifest.Configs) > 0 {
		return nil, fmt.Errorf("%s has files or configs; take them out, as those in the folders are listed by themselves", payload.ManifestName)
	}
	has := t.manifest.Architectures
	t.manifest.Architectures = slices.DeleteFunc(slices.Clone(has), func(a string) bool { return !slices.Contains(archs, a) })
	if len(t.manifest.Architectures) == 0 {
		return nil, fmt.Errorf("it is for %v, and images are wanted for %v", has, archs)
	}
	if err := t.readConfigs(filepath.Join(dir, configs)); err != nil {
		return nil, err
	}
	for _, folder := range append([]string{common}, t.manifest.Architectures...) {
		if err := t.readFolder(dir, folder); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(t.manifest.Files, func(a, b payload.File) int { return strings.Compare(a.Path+"\x00"+a.Arch, b.Path+"\x00"+b.Arch) })
	if errs := t.manifest.Validate(nil); len(errs) > 0 {
		return nil, fmt.Errorf("check %s: %w", payload.ManifestName, errs.ToAggregate())
	}
	return t, nil
}

func (t *payloadTree) readConfigs(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return fmt.Errorf("read config %s: %w", e.Name(), err)
		}
		t.manifest.Configs = append(t.manifest.Configs, payload.Config{Path: e.Name(), Content: string(text)})
	}
	return nil
}

func (t *payloadTree) readFolder(dir, folder string) error {
	root, err := filepath.EvalSymlinks(filepath.Join(dir, folder))
	if errors.Is(err, fs.ErrNotExist) && folder == common {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the files for %s: %w", folder, err)
	}
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			return err
		}
		rel, source := inside(root, name), inside(root, real)
		if source == "" {
			return fmt.Errorf("%s leads to %s, out of the payload", name, real)
		}
		return t.addFile(folder, rel, path.Join(folder, source), real)
	})
}

// inside is a path from root, or "" for one that is not below it.
func inside(root, name string) string {
	rel, err := filepath.Rel(root, name)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return filepath.ToSlash(rel)
}

// addFile lists a file. A link becomes a file of its own on the node, and is in the
// image once, since both have one source.
func (t *payloadTree) addFile(folder, to, from, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s/%s is no regular file, nor a link to one; a payload has nothing else", folder, to)
	}
	sum, err := sumOf(file)
	if err != nil {
		return err
	}
	// What else this machine says about modes is about this machine.
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	entry := payload.File{Path: to, Source: from, Mode: fmt.Sprintf("%#04o", mode), Size: info.Size(), SHA256: sum}
	if folder != common {
		entry.Arch = folder
	}
	t.manifest.Files = append(t.manifest.Files, entry)
	t.sources[from] = source{file: file, mode: mode}
	t.arch[from] = entry.Arch
	return nil
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
