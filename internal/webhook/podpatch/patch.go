package podpatch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// operation is one step of a patch. Only a removal has no value.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Of is the patch that makes one pod the other, in the fields that admission
// touches, or nil if there is nothing to do. Both have metadata and spec.
func Of(from, to *corev1.Pod) ([]byte, error) {
	ops := texts("/metadata/annotations", from.Annotations, to.Annotations)
	ops = append(ops, className(from.Spec.RuntimeClassName, to.Spec.RuntimeClassName)...)
	if !equality.Semantic.DeepEqual(from.Spec.Overhead, to.Spec.Overhead) {
		ops = append(ops, whole("/spec/overhead", len(from.Spec.Overhead), len(to.Spec.Overhead), to.Spec.Overhead)...)
	}
	ops = append(ops, texts("/spec/nodeSelector", from.Spec.NodeSelector, to.Spec.NodeSelector)...)
	ops = append(ops, tolerations(from.Spec.Tolerations, to.Spec.Tolerations)...)
	if len(ops) == 0 {
		return nil, nil
	}
	out, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("write the patch of pod %s/%s: %w", to.Namespace, to.Name, err)
	}
	return out, nil
}

// whole sets or removes a value; "add" also replaces a member that is there.
func whole(path string, had, has int, value any) []operation {
	switch {
	case has > 0:
		return []operation{{Op: "add", Path: path, Value: value}}
	case had > 0:
		return []operation{{Op: "remove", Path: path}}
	}
	return nil
}

// texts compares maps. Members are changed one by one, so that what others have
// added in the meantime is kept; an empty map may not be in the document at all.
func texts(path string, from, to map[string]string) []operation {
	if len(from) == 0 || len(to) == 0 {
		return whole(path, len(from), len(to), to)
	}
	var ops []operation
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[key]; !ok {
			ops = append(ops, operation{Op: "remove", Path: path + "/" + escape(key)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(to)) {
		had, ok := from[key]
		switch {
		case !ok:
			ops = append(ops, operation{Op: "add", Path: path + "/" + escape(key), Value: to[key]})
		case had != to[key]:
			ops = append(ops, operation{Op: "replace", Path: path + "/" + escape(key), Value: to[key]})
		}
	}
	return ops
}

func className(from, to *string) []operation {
	const path = "/spec/runtimeClassName"
	switch {
	case from == nil && to == nil || from != nil && to != nil && *from == *to:
		return nil
	case to == nil:
		return []operation{{Op: "remove", Path: path}}
	case from == nil:
		return []operation{{Op: "add", Path: path, Value: *to}}
	}
	return []operation{{Op: "replace", Path: path, Value: *to}}
}

// tolerations appends where it can: a list that is written anew loses what a
// newer API server knows of those that were there.
func tolerations(from, to []corev1.Toleration) []operation {
	const path = "/spec/tolerations"
	same := func(a, b corev1.Toleration) bool { return equality.Semantic.DeepEqual(a, b) }
	if len(from) == 0 || len(to) < len(from) || !slices.EqualFunc(from, to[:len(from)], same) {
		if slices.EqualFunc(from, to, same) {
			return nil
		}
		return whole(path, len(from), len(to), to)
	}
	var ops []operation
	for _, t := range to[len(from):] {
		ops = append(ops, operation{Op: "add", Path: path + "/-", Value: t})
	}
	return ops
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// escape writes a key as part of a path.
func escape(key string) string { return escaper.Replace(key) }
