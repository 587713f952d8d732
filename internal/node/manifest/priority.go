package manifest

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"fairlead.run/internal/node/manifest/check"
	"fairlead.run/internal/node/manifest/honoured"
	"fairlead.run/internal/node/priority"
)

func (d *decoder) priorityClass(doc *document, table []honoured.Field, _ string) {
	c := &schedulingv1.PriorityClass{}
	t := &target{doc, "PriorityClass", &c.ObjectMeta}
	if d.into(t, table, c) && d.sound(t, check.PriorityClass(c)) && d.add(t) {
		d.objects.Priorities[c.Name] = c
	}
}

// defaults complains of classes that are for pods without one, and are not, as another one
// is. An API server takes no second one.
func (m *merger) defaults() {
	first := priority.Default(m.objects.Priorities)
	for name, c := range m.objects.Priorities {
		if c.GlobalDefault && name != first.Name {
			where := m.objects.Where("PriorityClass", Key{Name: name})
			origin, _, _ := strings.Cut(where, ":")
			m.problem(origin, invalid("%s: PriorityClass %s: globalDefault: PriorityClass %s is the default already, and has the lower value; leave it out of one of them", where, name, first.Name))
		}
	}
}

// unclassed says what of a pod's priority does not fit its class; empty if all does.
func (o *Objects) unclassed(pod *corev1.Pod) string {
	if o.static {
		return ""
	}
	spec := pod.Spec.DeepCopy()
	err := priority.Resolve(spec, o.Priorities)
	if err == nil {
		return ""
	}
	if kind := errors.Unwrap(err); kind != nil {
		return strings.TrimSuffix(err.Error(), ": "+kind.Error())
	}
	return err.Error()
}
