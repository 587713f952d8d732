package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
)

const namespace = "fairlead-system"

// values reads files of values; a later one comes before an earlier one.
func values(files ...string) (map[string]any, error) {
	out := map[string]any{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		read, err := loader.LoadValues(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read values of %s: %w", name, err)
		}
		out = loader.MergeMaps(out, read)
	}
	return out, nil
}

// render is what each template of a chart makes of values, by the template's path
// from the top of the chart. Templates that make nothing are left out.
func render(ctx context.Context, c *chart.Chart, in string, vals map[string]any) (map[string]string, error) {
	options := common.ReleaseOptions{Name: "fairlead", Namespace: in, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, vals, options, common.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.Name(), err)
	}
	rendered, err := engine.Engine{Strict: true}.RenderWithContext(ctx, c, all)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.Name(), err)
	}
	out := map[string]string{}
	for name, text := range rendered {
		if text = strings.TrimSpace(text); text != "" {
			out[strings.TrimPrefix(name, c.Name()+"/")] = text + "\n"
		}
	}
	return out, nil
}

// isManifest leaves out the notes and what is only defined.
func isManifest(template string) bool { return filepath.Ext(template) == ".yaml" }

func printRendered(ctx context.Context, folder string, files []string) error {
	c, err := loader.LoadDir(folder)
	if err != nil {
		return err
	}
	vals, err := values(files...)
	if err != nil {
		return err
	}
	rendered, err := render(ctx, c, namespace, vals)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if isManifest(name) {
			fmt.Printf("---\n# %s\n%s", name, strings.TrimPrefix(rendered[name], "---\n"))
		}
	}
	return nil
}

// lintAll is helm lint --strict for the values of the chart and for those of the
// plain manifests.
func lintAll(folder string) error {
	plain, err := values(filepath.Join(folder, "../manifests.yaml"))
	if err != nil {
		return err
	}
	var faults []error
	for _, vals := range []map[string]any{{}, plain} {
		for _, m := range lint.RunAll(folder, vals, namespace).Messages {
			if m.Severity >= support.WarningSev {
				faults = append(faults, m)
			}
		}
	}
	return errors.Join(faults...)
}

// pack writes a chart whose images have the version as their tag.
func pack(folder, version, into string) error {
	c, err := loader.LoadDir(folder)
	if err != nil {
		return err
	}
	c.Metadata.AppVersion = version
	name, err := chartutil.Save(c, into)
	if err != nil {
		return fmt.Errorf("pack %s: %w", folder, err)
	}
	fmt.Println(name)
	return nil
}
