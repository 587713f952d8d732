package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// parts are the folders of templates that are folders of plain manifests, too.
var parts = []string{"webhook", "operator", "monitoring"}

// gardenPart is the folder of plain manifests of the webhook in a garden cluster.
const gardenPart = "garden"

const header = "# Made from deploy/charts/fairlead/%s by make generate.\n"

// plainManifests are the files of deploy that are rendered, by their paths from there.
func plainManifests(ctx context.Context, folder string) (map[string]string, error) {
	vals, err := values(filepath.Join(folder, "../manifests.yaml"))
	if err != nil {
		return nil, err
	}
	return manifestsOf(ctx, folder, vals)
}

// seedManifests are those of the operator in a seed of Gardener's, which only the chart
// makes.
func seedManifests(ctx context.Context, folder string) (map[string]string, error) {
	return manifestsOf(ctx, folder, map[string]any{
		"webhook":  map[string]any{"enabled": false},
		"operator": map[string]any{"enabled": true, "gardener": true},
	})
}

// gardenManifests are those of the webhook in a garden cluster, by their paths from
// deploy.
func gardenManifests(ctx context.Context, folder string) (map[string]string, error) {
	vals, err := values(filepath.Join(folder, "../manifests.yaml"), filepath.Join(folder, "../manifests-garden.yaml"))
	if err != nil {
		return nil, err
	}
	made, err := manifestsOf(ctx, folder, vals)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for path, text := range made {
		out[filepath.Join(gardenPart, filepath.Base(path))] = text
	}
	return out, nil
}

func manifestsOf(ctx context.Context, folder string, vals map[string]any) (map[string]string, error) {
	c, err := loader.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	rendered, err := render(ctx, c, namespace, vals)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, text := range rendered {
		for _, part := range parts {
			if path, found := strings.CutPrefix(name, "templates/"); found && isManifest(name) && filepath.Dir(path) == part {
				out[path] = fmt.Sprintf(header, name) + text
			}
		}
	}
	return out, nil
}

// writeManifests writes what plainManifests says, takes away what an earlier one
// left, and writes the page about roles.
func writeManifests(ctx context.Context, top, folder string) error {
	files, err := plainManifests(ctx, folder)
	if err != nil {
		return err
	}
	inGarden, err := gardenManifests(ctx, folder)
	if err != nil {
		return err
	}
	all := maps.Clone(files)
	maps.Copy(all, inGarden)
	deploy := filepath.Join(top, "deploy")
	if err := removeRendered(deploy, all); err != nil {
		return err
	}
	for path, text := range all {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(deploy, path)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(deploy, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	inSeed, err := seedManifests(ctx, folder)
	if err != nil {
		return err
	}
	page, err := rolesPage(files, inGarden, inSeed)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(top, "docs/rbac.md"), []byte(page), 0o644)
}

// removeRendered removes files that say of themselves that they were rendered, and
// that are not to be any more.
func removeRendered(deploy string, keep map[string]string) error {
	for _, part := range append([]string{gardenPart}, parts...) {
		folder := filepath.Join(deploy, part)
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			name := filepath.Join(folder, e.Name())
			if _, kept := keep[filepath.Join(part, e.Name())]; kept || e.IsDir() {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(string(text), strings.SplitN(header, "%", 2)[0]) {
				continue
			}
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
