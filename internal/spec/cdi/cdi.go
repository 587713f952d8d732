// Package cdi gives containers the devices that vendors describe by the
// Container Device Interface (github.com/cncf-tags/container-device-interface,
// SPEC.md): files in a few folders say what each device needs of an OCI spec.
//
// Nothing is read before the first container asks for a device, and nothing
// runs in between: who asks looks whether the folders have changed. A file that
// cannot be read harms only those who ask for what might be in it.
package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/pod"
)

// Devices knows the devices that the files in some folders describe. It is safe
// for use by many.
type Devices struct {
	dirs    []string
	folders []*folder // of dirs
}

// New reads nothing yet. A device in a later folder hides one of the same name
// in an earlier one.
func New(dirs []string) *Devices {
	d := &Devices{dirs: dirs}
	for _, dir := range dirs {
		d.folders = append(d.folders, &folder{path: dir})
	}
	return d
}

// Edit gives a container the devices that its request names: in the CRI's field
// CDI_devices, or in annotations cdi.k8s.io/ that the handler's configuration
// lets pass.
func (d *Devices) Edit(ctx context.Context, r *pod.BundleRequest, s *specs.Spec) error {
	names := slices.Clone(r.Container.Config.CDIDevices)
	for i, n := range names {
		if !parser.IsQualifiedName(n) {
			return fmt.Errorf("CDI_devices[%d].name %q is not vendor/class=name: %w", i, n, errdefs.ErrInvalidArgument)
		}
	}
	_, annotated, err := cdi.ParseAnnotations(s.Annotations)
	if err != nil {
		return fmt.Errorf("annotations %s*: %w: %w", cdi.AnnotationPrefix, err, errdefs.ErrInvalidArgument)
	}
	slices.Sort(annotated) // they come from a map
	for _, n := range annotated {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return d.Inject(ctx, s, names)
}

// Inject makes the edits of the named devices in a spec. Errors wrap
// errdefs.ErrNotFound for a device that no file describes.
func (d *Devices) Inject(ctx context.Context, s *specs.Spec, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if len(d.dirs) == 0 {
		return fmt.Errorf("CDI device %s: containers.cdi_spec_dirs names no folder: %w", names[0], errdefs.ErrNotFound)
	}
	found, err := d.find(ctx, names)
	if err != nil {
		return err
	}
	edited, err := edit(ctx, s, names, found)
	if err != nil {
		return fmt.Errorf("give the container CDI devices %s: %w", strings.Join(names, ", "), err)
	}
	*s = *edited
	return nil
}

// find looks for devices from the last folder on, and no further than it must:
// a folder that hangs harms only those who need what may be in it.
func (d *Devices) find(ctx context.Context, names []string) ([]*cdi.Device, error) {
	found, unknown := make([]*cdi.Device, len(names)), slices.Clone(names)
	hidden := map[string]bool{}
	var all []*contents
	for _, f := range slices.Backward(d.folders) {
		c, err := f.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the CDI folder %s: %w", f.path, err)
		}
		all = append(all, c)
		for i, name := range names {
			if found[i] == nil && !hidden[name] {
				found[i] = c.cache.GetDevice(name)
				hidden[name] = found[i] == nil && c.conflict(name)
			}
		}
		unknown = slices.DeleteFunc(unknown, func(n string) bool { return found[slices.Index(names, n)] != nil })
		if len(unknown) == 0 {
			return found, nil
		}
	}
	return nil, d.explain(unknown, all)
}

// edit returns the spec with the edits of devices, each with those of its file.
// It works on copies, for it looks at device nodes, and whoever asked may be gone
// before that is over.
func edit(ctx context.Context, s *specs.Spec, names []string, devices []*cdi.Device) (*specs.Spec, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	edited, edits := &specs.Spec{}, &cdi.ContainerEdits{}
	if err := json.Unmarshal(text, edited); err != nil {
		return nil, err
	}
	files := map[*cdi.Spec]bool{}
	for _, d := range devices {
		if of := d.GetSpec(); !files[of] {
			files[of] = true
			edits.Append(&cdi.ContainerEdits{ContainerEdits: &of.ContainerEdits})
		}
		edits.Append(&cdi.ContainerEdits{ContainerEdits: &d.ContainerEdits})
	}
	for i, n := range edits.DeviceNodes { // what the library finds out it writes into them
		node := *n
		edits.DeviceNodes[i] = &node
	}
	return hostpath.Look(ctx, "the device nodes of "+strings.Join(names, ", "), func() (*specs.Spec, error) {
		return edited, edits.Apply(edited)
	})
}

// explain says which devices there are instead.
func (d *Devices) explain(unknown []string, all []*contents) error {
	var known []string
	unread := map[string][]error{} // files that could not be used
	for _, c := range all {
		known = append(known, c.cache.ListDevices()...)
		maps.Copy(unread, c.cache.GetErrors())
	}
	slices.Sort(known)
	known = slices.Compact(known)
	var b strings.Builder
	for i, name := range unknown {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "CDI device %s is described by no file in %s", name, strings.Join(d.dirs, ", "))
		if of := sameKind(name, known); len(of) > 0 {
			fmt.Fprintf(&b, "; of its kind there are %s", strings.Join(of, ", "))
		} else if near := config.Nearest(name, known); near != "" {
			fmt.Fprintf(&b, ", did you mean %s?", near)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(unread)) {
		fmt.Fprintf(&b, "; left out is %s: %v", path, errors.Join(unread[path]...))
	}
	return fmt.Errorf("%s: %w", b.String(), errdefs.ErrNotFound)
}

// sameKind are some devices of the same vendor and class.
func sameKind(name string, known []string) []string {
	const some = 8
	kind, _, _ := strings.Cut(name, "=")
	var out []string
	for _, k := range known {
		if strings.HasPrefix(k, kind+"=") && len(out) < some {
			out = append(out, k)
		}
	}
	return out
}
