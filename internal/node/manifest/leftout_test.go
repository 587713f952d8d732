package manifest

import (
	"os"
	"strings"
	"testing"
)

// chart reads manifests as charts of a cluster render them.
func chart(t *testing.T, name string) Source {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return Source{Name: name, Data: text}
}

// TestCharts runs what charts for a cluster render, as it is.
func TestCharts(t *testing.T) {
	for name, want := range map[string][]string{
		"web.yaml": {
			"Ingress lab/web: is left out: nothing routes to pods", "HorizontalPodAutoscaler lab/web: is left out: there stay as many pods", "PodDisruptionBudget lab/web: is left out",
			"Role lab/web: is left out", "RoleBinding lab/web: is left out", "ClusterRole web-nodes: is left out", "ClusterRoleBinding web:nodes: is left out",
			"NetworkPolicy lab/web: is left out: traffic that it would refuse is NOT refused", "ServiceMonitor lab/web: is left out", "IngressClass internal: is left out",
			"HTTPRoute lab/web: is left out", "Certificate lab/web: is left out: nobody here issues certificates", "StorageClass fast: is left out",
			"ResourceQuota lab/all: is left out: what the pods of its namespace use together is NOT limited", "LimitRange lab/defaults: is left out: containers without requests and limits are NOT given any",
			"CustomResourceDefinition widgets.example.com: is left out", "Widget lab/web: is left out: nobody here acts on objects of its kind", "ValidatingAdmissionPolicy none: is left out: what it would refuse is NOT refused",
		},
	} {
		f, err := DecodeFile(chart(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		notes := strings.Join(f.Notes(), "\n")
		for _, text := range want {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: %q is not told:\n%s", name, text, notes)
			}
		}
	}
}

// TestUnknownStays refuses what nobody defines, and what pods would not be the same without.
func TestUnknownStays(t *testing.T) {
	defines := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\nspec: {group: %, names: {kind: Widget}}\n---\n"
	widget := "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\n"
	for text, want := range map[string]string{
		widget: "web.yaml:2: document 1: Widget of example.com/v1 is not something Fairlead knows",
		strings.Replace(defines, "%", "other.com", 1) + widget:                                                                                                "Widget of example.com/v1 is not something",
		strings.Replace(defines, "%", "apps", 1) + "apiVersion: apps/v1\nkind: Widget\n":                                                                      "Widget of apps/v1 is not something",
		"apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nmetadata: {name: a}\n":                                                                       "Prometheus of monitoring.coreos.com/v1 is not something",
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\n":                                                                                       "use a hostPath volume in the pod",
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {}\n":                                                                                     "Ingress without a name: metadata.name: is required",
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a/b}\n":                                                                            `metadata.name: "a/b"`,
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: [a]}\n":                                                                            "web.yaml:3: ",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n": "is defined twice",
	} {
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %q", text, err, want)
		}
	}
	// Definitions of one file count for others that are given with it.
	crd, object := Source{"crd.yaml", []byte(strings.Replace(defines, "%", "example.com", 1))}, Source{"object.yaml", []byte(widget)}
	if _, err := Decode([]Source{object, crd}); err != nil {
		t.Error(err)
	}
	if _, err := DecodeFiles([]Source{object, crd}); err != nil {
		t.Error(err)
	}
	if _, err := DecodeFiles([]Source{object}); err == nil {
		t.Error("was accepted")
	}
}
