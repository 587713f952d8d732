package inventory

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest/fields"
)

// Find finds a pod by namespace/name, by name, or by the start of its id.
func Find(pods []Pod, ref string) (*Pod, error) {
	var found []*Pod
	for i := range pods {
		p := &pods[i]
		if ref == p.Namespace+"/"+p.Name || ref == p.Name || ref == p.ID {
			found = append(found, p)
		}
	}
	if len(found) == 0 && len(ref) >= 3 {
		for i := range pods {
			if strings.HasPrefix(pods[i].ID, ref) {
				found = append(found, &pods[i])
			}
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, noPod(pods, ref)
	}
	var names []string
	for _, p := range found {
		names = append(names, fmt.Sprintf("%s/%s (%.13s)", p.Namespace, p.Name, p.ID))
	}
	return nil, fmt.Errorf("%q may be any of these pods; use namespace/name or more of the id: %s: %w", ref, strings.Join(names, ", "), errdefs.ErrInvalidArgument)
}

// ShortName is the pod's name, with its namespace unless that is the default.
func (p *Pod) ShortName() string {
	if p.Namespace == "default" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

func noPod(pods []Pod, ref string) error {
	if len(pods) == 0 {
		return fmt.Errorf("there is no pod %q, nor any other: %w", ref, errdefs.ErrNotFound)
	}
	var names []string
	for i := range pods {
		names = append(names, pods[i].ShortName())
	}
	text := ""
	if near := fields.Nearest(ref, names); near != "" {
		text = "; did you mean " + near + "?"
	}
	if len(names) > 10 {
		names = append(names[:10], "...")
	}
	return fmt.Errorf("there is no pod %q%s The pods here are %s: %w", ref, textOr(text, "."), strings.Join(names, ", "), errdefs.ErrNotFound)
}

func textOr(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// Port is the number of a port of a pod, by that number or by its name.
func (p *Pod) Port(text string) (uint16, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 {
		return uint16(n), nil
	}
	var names []string
	for i := range p.Containers {
		for _, port := range p.Containers[i].Ports {
			if port.Name == text && port.ContainerPort > 0 && port.ContainerPort <= math.MaxUint16 {
				return uint16(port.ContainerPort), nil
			}
			if port.Name != "" {
				names = append(names, port.Name)
			}
		}
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("pod %s has no port %q: its containers name none: %w", p.ShortName(), text, errdefs.ErrNotFound)
	}
	return 0, fmt.Errorf("pod %s has no port %q; it has %s: %w", p.ShortName(), text, strings.Join(names, ", "), errdefs.ErrNotFound)
}

// Find picks a container of a pod; without a name the first one that
// runs, else the first.
func (p *Pod) Find(name string) (*Container, error) {
	var names []string
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i], nil
		}
		names = append(names, p.Containers[i].Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("pod %s/%s has no containers: %w", p.Namespace, p.Name, errdefs.ErrPrecondition)
	}
	if name != "" {
		return nil, fmt.Errorf("pod %s/%s has no container %q; it has %s: %w", p.Namespace, p.Name, name, strings.Join(names, ", "), errdefs.ErrNotFound)
	}
	for i := range p.Containers {
		if p.Containers[i].State == "Running" {
			return &p.Containers[i], nil
		}
	}
	return &p.Containers[0], nil
}
