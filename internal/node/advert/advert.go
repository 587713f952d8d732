// Package advert says on a Node object what this machine's handlers can do, for
// those who match RuntimeClasses with nodes.
//
// It works out what to write, and does not talk to anybody.
package advert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// Handler is what is known of one.
type Handler struct {
	Name     string
	OnTrial  bool // nothing is known yet: what the node says stays
	Works    bool
	Features []string // as `fairlead handlers` writes them: "user-namespaces"
}

// Wanted is the labels and annotations of a node that has these handlers.
func Wanted(handlers []Handler) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	for _, h := range handlers {
		if h.OnTrial {
			continue
		}
		labels[runtimeclass.LabelHandlerPrefix+h.Name] = "false"
		if !h.Works {
			continue
		}
		labels[runtimeclass.LabelHandlerPrefix+h.Name] = "true"
		var names []string
		for _, f := range h.Features {
			names = append(names, camel(f))
		}
		slices.Sort(names)
		annotations[policy.AnnotationFeaturesPrefix+h.Name] = strings.Join(names, ",")
	}
	return labels, annotations
}

// Patch is what makes a node say that, as a merge patch (RFC 7386), or nil if it
// does. What is there of handlers that are gone is taken away; nothing else of
// the node is touched.
func Patch(node *corev1.Node, handlers []Handler) ([]byte, error) {
	labels, annotations := Wanted(handlers)
	changes := map[string]map[string]*string{
		"labels":      difference(node.Labels, labels, runtimeclass.LabelHandlerPrefix),
		"annotations": difference(node.Annotations, annotations, policy.AnnotationFeaturesPrefix),
	}
	for _, h := range handlers {
		if h.OnTrial {
			delete(changes["labels"], runtimeclass.LabelHandlerPrefix+h.Name)
			delete(changes["annotations"], policy.AnnotationFeaturesPrefix+h.Name)
		}
	}
	maps.DeleteFunc(changes, func(_ string, c map[string]*string) bool { return len(c) == 0 })
	if len(changes) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return nil, fmt.Errorf("encode the patch of node %s: %w", node.Name, err)
	}
	return patch, nil
}

// difference is what to set and, as nil, what to take away.
func difference(has, wants map[string]string, prefix string) map[string]*string {
	out := map[string]*string{}
	for key, value := range wants {
		if v, ok := has[key]; !ok || v != value {
			out[key] = &value
		}
	}
	for key := range has {
		if _, ok := wants[key]; !ok && strings.HasPrefix(key, prefix) {
			out[key] = nil
		}
	}
	return out
}

// camel writes a feature as Kubernetes writes its own: userNamespaces.
func camel(feature string) string {
	words := strings.Split(feature, "-")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
