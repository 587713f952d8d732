// Package placed remembers where a ContainerRuntime has put something. Type, pool and
// folder are what is found again by, on nodes and in OperatingSystemConfigs: an object
// that says something else later would leave there what it has. The webhook refuses such a
// change, and may be away.
package placed

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	gardener "fairlead.run/api/gardener/v1alpha1"
)

// Annotation has the memory of an object, on itself.
const Annotation = "operator.fairlead.run/placed"

type memory struct {
	Type       string `json:"type"`
	Pool       string `json:"pool"`
	BinaryPath string `json:"binaryPath"`
}

func of(c *gardener.ContainerRuntime) memory {
	return memory{c.Spec.Type, c.Spec.WorkerPool.Name, c.Spec.BinaryPath}
}

// remembered is what an object says now where nothing else is known of it.
func remembered(c *gardener.ContainerRuntime) memory {
	var m memory
	if json.Unmarshal([]byte(c.Annotations[Annotation]), &m) != nil || m.Type == "" || m.Pool == "" || m.BinaryPath == "" {
		return of(c)
	}
	return m
}

// Note remembers what an object says now, and whether that is news. Whoever puts
// something somewhere has it stored before.
func Note(c *gardener.ContainerRuntime) (bool, error) {
	text, err := json.Marshal(of(c))
	if err != nil || c.Annotations[Annotation] == string(text) {
		return false, err
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[Annotation] = string(text)
	return true, nil
}

// As is an object as it was when it put something somewhere: the same one, if it still
// says that.
func As(c *gardener.ContainerRuntime) *gardener.ContainerRuntime {
	m := remembered(c)
	if m == of(c) {
		return c
	}
	was := c.DeepCopy()
	was.Spec.Type, was.Spec.WorkerPool.Name, was.Spec.BinaryPath = m.Type, m.Pool, m.BinaryPath
	return was
}

// All are objects as As has them.
func All(list []gardener.ContainerRuntime) []gardener.ContainerRuntime {
	for i := range list {
		list[i] = *As(&list[i])
	}
	return list
}

// Moved says what an object has changed though something is there by it, and what to do.
func Moved(c *gardener.ContainerRuntime) field.ErrorList {
	var out field.ErrorList
	spec, was, now := field.NewPath("spec"), remembered(c), of(c)
	for _, one := range []struct {
		at       *field.Path
		was, now string
	}{
		{spec.Child("type"), was.Type, now.Type},
		{spec.Child("workerPool", "name"), was.Pool, now.Pool},
		{spec.Child("binaryPath"), was.BinaryPath, now.BinaryPath},
	} {
		if one.was != one.now {
			out = append(out, field.Forbidden(one.at, fmt.Sprintf("it was %s when the runtime was brought to machines, and would not be found there by %s: change it back to %s, or delete this object, which takes away what is there, and make another", one.was, one.now, one.was)))
		}
	}
	return out
}
