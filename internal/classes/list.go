package classes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

var onePod = *resource.NewQuantity(1, resource.DecimalSI)

// Class is a RuntimeClass, and who has it and uses it.
type Class struct {
	Name      string              `json:"name"`
	Handler   string              `json:"handler"`
	Isolation v1alpha1.Isolation  `json:"isolation"`
	Default   bool                `json:"default,omitempty"` // of the cluster
	Overhead  corev1.ResourceList `json:"overhead,omitempty"`
	Matching  int                 `json:"matchingNodes"`
	Nodes     int                 `json:"nodes"` // of the cluster
	Pods      int                 `json:"pods"`  // that have not ended
	Created   time.Time           `json:"created,omitzero"`
	// Unknown names the numbers that are none, as they could not be read: nodes
	// (and so those that match), or pods.
	Unknown []string `json:"unknown,omitempty"`
}

// List is the classes by name. A pod without a class counts for none.
func List(s *Snapshot) ([]Class, error) {
	standard, _ := policy.DefaultOf(s.Classes)
	pods := map[string]int{}
	for _, p := range s.Pods {
		if !ended(p) {
			pods[runtimeclass.NameOf(p)]++
		}
	}
	var unknown []string
	for _, what := range []string{Nodes, Pods} {
		if s.lacks(what) {
			unknown = append(unknown, what)
		}
	}
	out := []Class{}
	// Classes with the same demands match the same nodes: there are many classes,
	// and few demands.
	matching := map[string]int{}
	for _, c := range s.Classes {
		key, err := demands(c)
		if err != nil {
			return nil, err
		}
		if _, known := matching[key]; !known {
			if matching[key], err = countNodes(c, s.Nodes); err != nil {
				return nil, err
			}
		}
		row := Class{
			Name: c.Name, Handler: c.Handler, Isolation: policy.IsolationOf(c), Default: c == standard,
			Matching: matching[key], Nodes: len(s.Nodes), Pods: pods[c.Name], Created: c.CreationTimestamp.Time, Unknown: unknown,
		}
		if c.Overhead != nil {
			row.Overhead = c.Overhead.PodFixed
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Class) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func countNodes(c *nodev1.RuntimeClass, nodes []*corev1.Node) (int, error) {
	matches, err := runtimeclass.Match(runtimeclass.Query{Class: c, Nodes: nodes})
	if err != nil {
		return 0, fmt.Errorf("match RuntimeClass %s with nodes: %w", c.Name, err)
	}
	n := 0
	for _, m := range matches {
		if m.OK() {
			n++
		}
	}
	return n, nil
}

func demands(c *nodev1.RuntimeClass) (string, error) {
	text, err := json.Marshal(c.Scheduling)
	if err != nil {
		return "", fmt.Errorf("encode the scheduling of RuntimeClass %s: %w", c.Name, err)
	}
	return c.Handler + "\x00" + string(text), nil
}
