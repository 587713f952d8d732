package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
)

// page is what a pod was given, by container and resource. It is replaced and never
// changed.
type page struct {
	Containers map[string]map[string]grant `json:"containers"`
}

// grant is the devices of one resource that a container has.
type grant struct {
	Devices []string `json:"devices"`
	// Nodes are the NUMA nodes of those devices of which the plugin had told any.
	Nodes map[string][]int64 `json:"nodes,omitempty"`
	// Answer is what the plugin has said of them; nil until it was asked.
	Answer *answer `json:"answer,omitempty"`
	// Prepare says that the plugin wants to be told each time before they are used.
	Prepare bool `json:"prepare,omitempty"`
}

// answer is how a container is given its devices.
type answer struct {
	Env         map[string]string `json:"env,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Mounts      []mount           `json:"mounts,omitempty"`
	Devices     []device          `json:"devices,omitempty"`
	CDI         []string          `json:"cdi,omitempty"`
}

type mount struct {
	Container string `json:"container"`
	Host      string `json:"host"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

type device struct {
	Container   string `json:"container"`
	Host        string `json:"host"`
	Permissions string `json:"permissions"`
}

// answerOf is what a plugin has said, as it is kept.
func answerOf(r *api.ContainerAllocateResponse) *answer {
	out := &answer{Env: r.GetEnvs(), Annotations: r.GetAnnotations()}
	for _, m := range r.GetMounts() {
		out.Mounts = append(out.Mounts, mount{m.GetContainerPath(), m.GetHostPath(), m.GetReadOnly()})
	}
	for _, d := range r.GetDevices() {
		out.Devices = append(out.Devices, device{d.GetContainerPath(), d.GetHostPath(), d.GetPermissions()})
	}
	for _, c := range r.GetCdiDevices() {
		out.CDI = append(out.CDI, c.GetName())
	}
	return out
}

// addTo gives it to a container.
func (a *answer) addTo(g *podspec.Given) {
	if g.Env == nil {
		g.Env, g.Annotations = map[string]string{}, map[string]string{}
	}
	maps.Copy(g.Env, a.Env)
	maps.Copy(g.Annotations, a.Annotations)
	for _, m := range a.Mounts {
		g.Mounts = append(g.Mounts, &runtimeapi.Mount{ContainerPath: m.Container, HostPath: m.Host, Readonly: m.ReadOnly})
	}
	for _, d := range a.Devices {
		g.Devices = append(g.Devices, &runtimeapi.Device{ContainerPath: d.Container, HostPath: d.Host, Permissions: d.Permissions})
	}
	for _, name := range a.CDI {
		if !slices.ContainsFunc(g.CDI, func(c *runtimeapi.CDIDevice) bool { return c.GetName() == name }) {
			g.CDI = append(g.CDI, &runtimeapi.CDIDevice{Name: name})
		}
	}
}

// with is the page with one more grant, or another one.
func (p *page) with(container, resource string, g grant) *page {
	out := &page{Containers: map[string]map[string]grant{}}
	if p != nil {
		maps.Copy(out.Containers, p.Containers)
	}
	of := maps.Clone(out.Containers[container])
	if of == nil {
		of = map[string]grant{}
	}
	of[resource] = g
	out.Containers[container] = of
	return out
}

const namesFile = "resources.json"

// load reads the names of resources, and the pages of pods.
func load(folder string) (names map[string]bool, pods map[types.UID]*page, err error) {
	names, pods = map[string]bool{}, map[types.UID]*page{}
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return names, pods, nil
	}
	errs := []error{err}
	for _, e := range entries {
		uid, isPage := strings.CutSuffix(e.Name(), ".json")
		switch {
		case e.Name() == namesFile:
			errs = append(errs, read(filepath.Join(folder, namesFile), &names))
		case isPage && removal.IsUID(uid):
			p := &page{}
			if err := read(filepath.Join(folder, e.Name()), p); err != nil {
				errs = append(errs, err)
				p = &page{} // which goes with its pod
			}
			pods[types.UID(uid)] = p
		}
	}
	if names == nil { // null, which nobody writes
		names = map[string]bool{}
	}
	return names, pods, errors.Join(errs...)
}

func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

func writeNames(folder string, names map[string]bool) error { return write(folder, namesFile, names) }

func writePage(folder string, uid types.UID, p *page) error {
	if !removal.IsUID(string(uid)) {
		return nil // nothing of such a pod is found again
	}
	return write(folder, string(uid)+".json", p)
}

func write(folder, name string, what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(folder, name), data, 0o600); err != nil {
		return fmt.Errorf("record who has which devices: %w", err)
	}
	return nil
}

func removePage(folder string, uid types.UID) error {
	if err := os.Remove(filepath.Join(folder, string(uid)+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
