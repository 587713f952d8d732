package main

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest/honoured"
	"fairlead.run/internal/node/manifest/leftout"
)

// kinds in the order of the page. Templates are Pods, and are not listed again.
var kinds = []string{
	"v1 Pod", "apps/v1 Deployment", "extensions/v1beta1 Deployment", "apps/v1 ReplicaSet", "apps/v1 DaemonSet", "apps/v1 StatefulSet",
	"batch/v1 Job", "batch/v1 CronJob", "v1 ConfigMap", "v1 Secret", "v1 PersistentVolumeClaim",
	"v1 Namespace", "v1 Service", "v1 ServiceAccount",
	"node.k8s.io/v1 RuntimeClass", "node.k8s.io/v1beta1 RuntimeClass", "node.k8s.io/v1alpha1 RuntimeClass", "scheduling.k8s.io/v1 PriorityClass",
}

func matrix() string {
	var b strings.Builder
	tables := honoured.Tables()
	for _, kind := range kinds {
		version, name, _ := strings.Cut(kind, " ")
		fmt.Fprintf(&b, "\n### %s, %s\n\n| field | remarks |\n| --- | --- |\n", name, version)
		templates := map[string]bool{}
		for _, f := range tables[kind] {
			if at, _, ok := strings.Cut(f.Path, "template."); ok {
				templates[at+"template"] = true
				continue
			}
			remarks := f.Note
			if f.Idle != "" {
				remarks = "left out with a note: " + f.Idle
			}
			if len(f.Only) > 0 {
				remarks = strings.TrimPrefix(remarks+"; only `"+strings.Join(f.Only, "`, `")+"`", "; ")
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", f.Path, remarks)
		}
		for at := range templates { // of which there is one at most
			fmt.Fprintf(&b, "| `%s` | as a Pod |\n", at)
		}
		if kind == "v1 Pod" {
			b.WriteString("\nRefused in a Pod, among others:\n\n")
			refused(&b, "spec", reflect.TypeFor[corev1.PodSpec](), tables[kind])
			refused(&b, "spec.containers[]", reflect.TypeFor[corev1.Container](), tables[kind])
			refused(&b, "spec.volumes[]", reflect.TypeFor[corev1.Volume](), tables[kind])
		}
	}
	beside(&b)
	b.WriteString("\n")
	return b.String()
}

// beside lists the kinds that are left out.
func beside(b *strings.Builder) {
	b.WriteString("\n### Kinds that are left out\n\nOf any version. Nobody looks at their fields.\n\n| kind | group | what is not done |\n| --- | --- | --- |\n")
	for _, k := range leftout.All() {
		fmt.Fprintf(b, "| %s | %s | %s |\n", k.Name, cmp.Or(k.Group, "that of pods"), k.Why)
	}
}

// refused lists the fields of a type that the table does not have.
func refused(b *strings.Builder, path string, t reflect.Type, table []honoured.Field) {
	var names []string
	for _, name := range fields(t) {
		known := slices.ContainsFunc(table, func(f honoured.Field) bool {
			rest, ok := strings.CutPrefix(f.Path, path+"."+name)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
		if !known {
			names = append(names, "`"+name+"`")
		}
	}
	slices.Sort(names)
	fmt.Fprintf(b, "* of `%s`: %s\n", path, strings.Join(names, ", "))
}

func fields(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" {
			out = append(out, name)
		} else if f.Anonymous {
			out = append(out, fields(f.Type)...)
		}
	}
	return out
}
