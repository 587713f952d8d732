package podspec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/errdefs"
)

// variables keeps the order of first definition; a later one replaces the value.
type variables struct {
	order  []string
	values map[string]string
}

func (v *variables) set(name, value string) {
	if _, known := v.values[name]; !known {
		v.order = append(v.order, name)
	}
	v.values[name] = value
}

// environment is the container's environment: envFrom first, then env, each
// seeing what came before it.
func environment(c *Context, ct *corev1.Container) (*variables, error) {
	vars := &variables{values: map[string]string{}}
	for _, from := range ct.EnvFrom {
		for _, kv := range fromObject(c, from) {
			if name := from.Prefix + kv[0]; len(validation.IsRelaxedEnvVarName(name)) == 0 {
				vars.set(name, kv[1])
			}
		}
	}
	for _, e := range ct.Env {
		value := vars.expand(e.Value)
		if e.ValueFrom != nil {
			v, skip, err := fromSource(c, ct, e.ValueFrom)
			if err != nil {
				return nil, fmt.Errorf("container %s: variable %s: %w", ct.Name, e.Name, err)
			}
			if skip {
				continue
			}
			value = v
		}
		vars.set(e.Name, value)
	}
	return vars, nil
}

func fromObject(c *Context, from corev1.EnvFromSource) [][2]string {
	var out [][2]string
	if r := from.ConfigMapRef; r != nil {
		if cm := c.Objects.ConfigMap(c.Pod.Namespace, r.Name); cm != nil {
			for k, v := range cm.Data {
				out = append(out, [2]string{k, v})
			}
		}
	}
	if r := from.SecretRef; r != nil {
		if s := c.Objects.Secret(c.Pod.Namespace, r.Name); s != nil {
			for k, v := range s.Data {
				out = append(out, [2]string{k, string(v)})
			}
		}
	}
	slices.SortFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out
}

// fromSource resolves valueFrom. It skips an optional key that is not there.
func fromSource(c *Context, ct *corev1.Container, from *corev1.EnvVarSource) (value string, skip bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = FieldValue(c, from.FieldRef.FieldPath)
		return value, false, err
	case from.ResourceFieldRef != nil:
		value, err = ResourceValue(c, ct, from.ResourceFieldRef)
		return value, false, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		if cm := c.Objects.ConfigMap(c.Pod.Namespace, r.Name); cm != nil {
			if v, ok := cm.Data[r.Key]; ok {
				return v, false, nil
			}
		}
		if isTrue(r.Optional) {
			return "", true, nil
		}
		return "", false, fmt.Errorf("the ConfigMap %s has no key %q: %w", r.Name, r.Key, errdefs.ErrNotFound)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		if s := c.Objects.Secret(c.Pod.Namespace, r.Name); s != nil {
			if v, ok := s.Data[r.Key]; ok {
				return string(v), false, nil
			}
		}
		if isTrue(r.Optional) {
			return "", true, nil
		}
		return "", false, fmt.Errorf("the Secret %s has no key %q: %w", r.Name, r.Key, errdefs.ErrNotFound)
	}
	return "", false, fmt.Errorf("valueFrom names no source: %w", errdefs.ErrInvalidArgument)
}

// FieldValue resolves a path of the downward API.
func FieldValue(c *Context, path string) (string, error) {
	pod := c.Pod
	if name, rest, ok := strings.Cut(path, "['"); ok {
		key := strings.TrimSuffix(rest, "']")
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "spec.nodeName":
		return c.Node.Name, nil
	case "spec.serviceAccountName":
		return "default", nil
	case "status.hostIP":
		return first(c.Node.IPs), nil
	case "status.hostIPs":
		return strings.Join(c.Node.IPs, ","), nil
	case "status.podIP":
		return first(c.Addresses()), nil
	case "status.podIPs":
		return strings.Join(c.Addresses(), ","), nil
	}
	return "", fmt.Errorf("field %q is not known: %w", path, errdefs.ErrInvalidArgument)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func lines(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+strconv.Quote(v))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// ResourceValue resolves a resourceFieldRef. A limit that is not set is what
// the node has.
func ResourceValue(c *Context, ct *corev1.Container, r *corev1.ResourceFieldSelector) (string, error) {
	if r.ContainerName != "" && r.ContainerName != ct.Name {
		ct = findContainer(c.Pod, r.ContainerName)
		if ct == nil {
			return "", fmt.Errorf("the pod has no container %q: %w", r.ContainerName, errdefs.ErrNotFound)
		}
	}
	list, name, _ := strings.Cut(r.Resource, ".")
	q, set := ct.Resources.Limits[corev1.ResourceName(name)]
	if list == "requests" {
		if request, ok := ct.Resources.Requests[corev1.ResourceName(name)]; ok {
			q, set = request, true
		}
	}
	if !set && list == "limits" {
		if name == "cpu" {
			q = *resource.NewQuantity(int64(c.Node.CPUs), resource.DecimalSI)
		} else {
			q = *resource.NewQuantity(c.Node.MemoryBytes, resource.BinarySI)
		}
	}
	divisor := r.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == "cpu" {
		return strconv.FormatInt(ceil(milli(&q), milli(&divisor)), 10), nil
	}
	return strconv.FormatInt(ceil(q.Value(), divisor.Value()), 10), nil
}

func ceil(a, b int64) int64 {
	return int64(math.Ceil(float64(a) / float64(b)))
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i]
		}
	}
	return nil
}

// Expand puts the container's variables into a command, as it is done with its own.
func Expand(c *Context, ct *corev1.Container, command []string) ([]string, error) {
	vars, err := environment(c, ct)
	if err != nil {
		return nil, err
	}
	return vars.expandAll(command), nil
}

func (v *variables) expandAll(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, v.expand(s))
	}
	return out
}

// expand replaces $(NAME) by the value of a known variable. An unknown one
// stays as it is written, and $$ stands for one $.
func (v *variables) expand(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			s = s[i+2:]
		case '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				b.WriteString(s[i:])
				return b.String()
			}
			if value, ok := v.values[s[i+2:i+end]]; ok {
				b.WriteString(value)
			} else {
				b.WriteString(s[i : i+end+1])
			}
			s = s[i+end+1:]
		default:
			b.WriteByte('$')
			s = s[i+1:]
		}
	}
}
