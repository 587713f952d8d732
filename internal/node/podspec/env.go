package podspec

import (
	"cmp"
	"context"
	"fmt"
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
	links  map[string]string // of Services: these are used where there is no other
}

func (v *variables) set(name, value string) {
	if _, known := v.values[name]; !known {
		v.order = append(v.order, name)
	}
	v.values[name] = value
}

// environment is the container's environment: envFrom first, then env, each
// seeing what came before it, then what tells of Services and was not set.
func environment(ctx context.Context, c *Context, ct *corev1.Container) (*variables, error) {
	services, err := serviceVariables(c)
	if err != nil {
		return nil, fmt.Errorf("container %s: the variables of Services: %w", ct.Name, err)
	}
	vars := &variables{values: map[string]string{}, links: services.values}
	for _, from := range ct.EnvFrom {
		list, err := fromObject(ctx, c, from)
		if err != nil {
			return nil, fmt.Errorf("container %s: envFrom: %w", ct.Name, err)
		}
		for _, kv := range list {
			if name := from.Prefix + kv[0]; len(validation.IsRelaxedEnvVarName(name)) == 0 {
				vars.set(name, kv[1])
			}
		}
	}
	for _, e := range ct.Env {
		value := vars.expand(e.Value)
		if e.ValueFrom != nil {
			v, skip, err := fromSource(ctx, c, ct, e.ValueFrom)
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
	for _, name := range services.order {
		if _, known := vars.values[name]; !known {
			vars.set(name, services.values[name])
		}
	}
	return vars, nil
}

// fromObject is all that an object has, by its keys.
func fromObject(ctx context.Context, c *Context, from corev1.EnvFromSource) ([][2]string, error) {
	var out [][2]string
	if r := from.ConfigMapRef; r != nil {
		cm, err := c.Objects.ConfigMap(ctx, c.Pod.Namespace, r.Name)
		if err != nil {
			return nil, err
		}
		if cm == nil && !isTrue(r.Optional) {
			return nil, fmt.Errorf("configmap %q not found: %w", r.Name, errdefs.ErrNotFound)
		}
		if cm != nil {
			for k, v := range cm.Data {
				out = append(out, [2]string{k, v})
			}
		}
	}
	if r := from.SecretRef; r != nil {
		s, err := c.Objects.Secret(ctx, c.Pod.Namespace, r.Name)
		if err != nil {
			return nil, err
		}
		if s == nil && !isTrue(r.Optional) {
			return nil, fmt.Errorf("secret %q not found: %w", r.Name, errdefs.ErrNotFound)
		}
		if s != nil {
			for k, v := range s.Data {
				out = append(out, [2]string{k, string(v)})
			}
		}
	}
	slices.SortFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out, nil
}

// fromSource resolves valueFrom. It skips an optional key that is not there.
func fromSource(ctx context.Context, c *Context, ct *corev1.Container, from *corev1.EnvVarSource) (value string, skip bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = FieldValue(c, from.FieldRef.FieldPath)
		return value, false, err
	case from.ResourceFieldRef != nil:
		value, err = ResourceValue(c, ct, from.ResourceFieldRef)
		return value, false, err
	case from.FileKeyRef != nil:
		return fromFile(c, from.FileKeyRef)
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		cm, err := c.Objects.ConfigMap(ctx, c.Pod.Namespace, r.Name)
		if err != nil {
			return "", false, err
		}
		if cm != nil {
			if v, ok := cm.Data[r.Key]; ok {
				return v, false, nil
			}
		}
		if isTrue(r.Optional) {
			return "", true, nil
		}
		if cm == nil {
			return "", false, fmt.Errorf("configmap %q not found: %w", r.Name, errdefs.ErrNotFound)
		}
		return "", false, fmt.Errorf("the ConfigMap %s has no key %q: %w", r.Name, r.Key, errdefs.ErrNotFound)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		s, err := c.Objects.Secret(ctx, c.Pod.Namespace, r.Name)
		if err != nil {
			return "", false, err
		}
		if s != nil {
			if v, ok := s.Data[r.Key]; ok {
				return string(v), false, nil
			}
		}
		if isTrue(r.Optional) {
			return "", true, nil
		}
		if s == nil {
			return "", false, fmt.Errorf("secret %q not found: %w", r.Name, errdefs.ErrNotFound)
		}
		return "", false, fmt.Errorf("the Secret %s has no key %q: %w", r.Name, r.Key, errdefs.ErrNotFound)
	}
	return "", false, fmt.Errorf("valueFrom names no source: %w", errdefs.ErrInvalidArgument)
}

// FieldValue resolves a path of the downward API.
func FieldValue(c *Context, path string) (string, error) {
	pod := c.Pod
	if name, rest, ok := strings.Cut(path, "['"); ok {
		key, closed := strings.CutSuffix(rest, "']")
		switch {
		case !closed:
		case name == "metadata.labels":
			return pod.Labels[key], nil
		case name == "metadata.annotations":
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
		return cmp.Or(pod.Spec.ServiceAccountName, "default"), nil
	case "status.hostIP":
		return first(c.Node.IPs()), nil
	case "status.hostIPs":
		return strings.Join(c.hostAddresses(), ","), nil
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

// ResourceValue resolves a resourceFieldRef. A limit that is not set is the pod's
// (KEP-2837), or else what the node has. In a volume the container is the one that the reference names.
func ResourceValue(c *Context, ct *corev1.Container, r *corev1.ResourceFieldSelector) (string, error) {
	if r.ContainerName != "" && r.ContainerName != ct.Name {
		ct = findContainer(c.Pod, r.ContainerName)
		if ct == nil {
			return "", fmt.Errorf("the pod has no container %q: %w", r.ContainerName, errdefs.ErrNotFound)
		}
	}
	list, word, _ := strings.Cut(r.Resource, ".")
	name := corev1.ResourceName(word)
	if list != "limits" && list != "requests" || !downward(name) {
		return "", fmt.Errorf("resource %q is not known; a container has limits and requests of cpu, memory, ephemeral-storage and hugepages-SIZE: %w", r.Resource, errdefs.ErrInvalidArgument)
	}
	q := ct.Resources.Limits[name]
	if list == "requests" {
		if request, ok := ct.Resources.Requests[name]; ok {
			q = request
		}
	} else if q.IsZero() {
		if q = limit(c.Pod, ct, name); q.IsZero() || pages(name) {
			q = c.Node.allocatable(name)
		}
	}
	divisor := r.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == corev1.ResourceCPU {
		return strconv.FormatInt(ceil(milli(&q), milli(&divisor)), 10), nil
	}
	return strconv.FormatInt(ceil(q.Value(), divisor.Value()), 10), nil
}

// downward says that a resource can be told by the downward API.
func downward(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return pages(name)
}

func pages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// allocatable is what the node has of a resource for pods, nothing of huge pages:
// who has no limit for them may use none.
func (n *Node) allocatable(name corev1.ResourceName) resource.Quantity {
	q, known := n.Allocatable[name]
	switch {
	case pages(name):
		return resource.Quantity{}
	case known:
		return q
	case name == corev1.ResourceCPU:
		return *resource.NewQuantity(int64(n.CPUs), resource.DecimalSI)
	case name == corev1.ResourceMemory:
		return *resource.NewQuantity(n.MemoryBytes, resource.BinarySI)
	}
	return resource.Quantity{}
}

// ceil divides and rounds up.
func ceil(a, b int64) int64 {
	b = max(b, 1)
	n := a / b
	if a%b > 0 {
		n++
	}
	return n
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
func Expand(ctx context.Context, c *Context, ct *corev1.Container, command []string) ([]string, error) {
	vars, err := environment(ctx, c, ct)
	if err != nil {
		return nil, err
	}
	return vars.expandAll(command), nil
}

// ExpandPlain puts in those variables alone whose values the spec itself has.
func ExpandPlain(ct *corev1.Container, command []string) []string {
	vars := variables{values: map[string]string{}}
	for _, e := range ct.Env {
		if e.ValueFrom == nil {
			vars.set(e.Name, vars.expand(e.Value))
		}
	}
	return vars.expandAll(command)
}

func (v *variables) expandAll(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, v.expand(s))
	}
	return out
}

func (v *variables) known(name string) (string, bool) {
	if value, ok := v.values[name]; ok {
		return value, true
	}
	value, ok := v.links[name]
	return value, ok
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
			if end < 0 { // it is no reference, and what follows is as anywhere
				b.WriteString("$(")
				s = s[i+2:]
				continue
			}
			if value, ok := v.known(s[i+2 : i+end]); ok {
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
