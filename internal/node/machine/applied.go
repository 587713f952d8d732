package machine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
)

// appliedPrefix starts the names of files that were written by Apply, one for each
// object. All others in the folder belong to people.
const appliedPrefix = "applied."

// errNoFolder is why nothing can be applied.
var errNoFolder = fmt.Errorf("fairlead up has no folder of manifests that objects could be written to, as it was started with --manifests -: %w", errdefs.ErrPrecondition)

// Applied is what became of an object.
type Applied struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Change    string `json:"change"` // created, configured, unchanged, restarted or deleted
	File      string `json:"file"`
	// Pods are those of an object that is deleted, which end now.
	Pods []types.UID `json:"pods,omitempty"`
	// Elsewhere is where an object that is deleted is written as well. It stays for that.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// applied is the file of an object. The names of objects hold no slash.
func (m *Machine) applied(kind string, k manifest.Key) string {
	name := appliedPrefix + strings.ToLower(kind) + "."
	if k.Namespace != "" {
		name += k.Namespace + "."
	}
	return filepath.Join(m.cfg.Manifests.Folder, name+k.Name+".yaml")
}

// Apply writes the objects of a manifest into the folder of manifests, all of them or
// none, each into a file of its own. Objects that are written in files of people are
// left to those. It comes back when the agent knows of them.
func (m *Machine) Apply(ctx context.Context, text []byte) ([]Applied, error) {
	if m.cfg.Manifests.Folder == "" {
		return nil, errNoFolder
	}
	given := manifest.Source{Name: "the manifest", Data: text}
	if _, err := manifest.DecodeFile(given); err != nil {
		return nil, err
	}
	objects, err := manifest.Singles(given)
	if err == nil {
		err = m.stillRestarted(objects)
	}
	if err != nil {
		return nil, err
	}
	var faults []error
	out := make([]Applied, len(objects))
	for i, o := range objects {
		file := m.applied(o.Kind, o.Key)
		out[i] = Applied{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, File: file, Change: "created"}
		if where := m.read().Where(o.Kind, o.Key); where != "" && !strings.HasPrefix(where, file) {
			faults = append(faults, fmt.Errorf("%s %s is written at %s; change it there: %w", o.Kind, o.Key, where, errdefs.ErrAlreadyExists))
		}
		if old, err := os.ReadFile(file); err == nil {
			out[i].Change = "configured"
			if bytes.Equal(old, o.Text) {
				out[i].Change = "unchanged"
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(m.cfg.Manifests.Folder, 0o700); err != nil {
		return nil, err
	}
	olds := make([][]byte, len(objects)) // nil for files that there were not
	for i, o := range objects {
		if out[i].Change == "unchanged" {
			continue
		}
		var err error
		if out[i].Change == "configured" {
			olds[i], err = os.ReadFile(out[i].File)
		}
		if err == nil {
			err = atomicfile.WriteSync(out[i].File, o.Text, 0o600)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("write %s %s: %w; nothing is applied", o.Kind, o.Key, err), restore(out[:i], olds))
		}
	}
	m.settle(ctx, objects)
	return out, nil
}

// objectsOf are what manifests ask for that were looked at before.
func objectsOf(all []manifest.Single) *manifest.Objects {
	var files []*manifest.File
	for _, o := range all {
		if f, err := manifest.DecodeFile(manifest.Source{Name: o.Kind + " " + o.Key.String(), Data: o.Text}); err == nil {
			files = append(files, f)
		}
	}
	asked, _ := manifest.Merge(files)
	return asked
}

// restore puts files back that were written.
func restore(written []Applied, olds [][]byte) error {
	var errs []error
	for i, w := range written {
		var err error
		switch w.Change {
		case "created":
			err = os.Remove(w.File)
		case "configured":
			err = atomicfile.WriteSync(w.File, olds[i], 0o600)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("but %s %s is, as its file cannot be put back: %w", w.Kind, manifest.Key{Namespace: w.Namespace, Name: w.Name}, err))
		}
	}
	return errors.Join(errs...)
}

// reread is how long a folder of manifests may take to be read again.
const reread = 10 * time.Second

// Delete takes an object away that was applied. It comes back when that was noticed, and
// while pods of it end.
func (m *Machine) Delete(ctx context.Context, kind string, k manifest.Key) (Applied, error) {
	if m.cfg.Manifests.Folder == "" {
		return Applied{}, errNoFolder
	}
	file := m.applied(kind, k)
	faults := slices.Concat(validation.IsDNS1123Label(strings.ToLower(kind)), validation.IsDNS1123Label(cmp.Or(k.Namespace, "default")), validation.IsDNS1123Subdomain(k.Name))
	if len(faults) > 0 { // it would be a path to another file
		return Applied{}, fmt.Errorf("%q %q is no name of an object: %s: %w", kind, k, strings.Join(faults, "; "), errdefs.ErrInvalidArgument)
	}
	pods := m.podsOf(kind, k)
	err := os.Remove(file)
	switch {
	case err == nil:
		out := Applied{Kind: kind, Namespace: k.Namespace, Name: k.Name, Change: "deleted", File: file, Pods: pods}
		out.Elsewhere = m.elsewhere(ctx, kind, k, file)
		return out, nil
	case !errors.Is(err, os.ErrNotExist):
		return Applied{}, fmt.Errorf("delete %s %s: %w", kind, k, err)
	}
	// What was deleted a moment ago is still known by the file that it had.
	if where := m.read().Where(kind, k); where != "" && !strings.HasPrefix(where, file+":") {
		return Applied{}, fmt.Errorf("%s %s is written at %s; delete it there: %w", kind, k, where, errdefs.ErrPrecondition)
	}
	if a, ok := m.ownedPod(k); ok && kind == "Pod" {
		advice := "delete that"
		if slices.Contains(restartable, a.kind) {
			advice += fmt.Sprintf(", or have its pods made anew: fairlead restart %s/%s -n %s", strings.ToLower(a.kind), a.of.Name, a.of.Namespace)
		}
		return Applied{}, fmt.Errorf("pod %s belongs to %s %s; %s: %w", k, a.kind, a.of, advice, errdefs.ErrPrecondition)
	}
	return Applied{}, fmt.Errorf("there is no %s %s: %w", kind, k, errdefs.ErrNotFound)
}

// ownedPod finds a pod that is there for another object.
func (m *Machine) ownedPod(k manifest.Key) (ask, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.last.pods {
		if a.key == k && a.kind != "Pod" {
			return a, true
		}
	}
	return ask{}, false
}

// podsOf are the pods of an object that there are: those that were made for it, or the pod
// itself.
func (m *Machine) podsOf(kind string, k manifest.Key) (out []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.agent.Pods() {
		if a, ok := m.last.pods[p.UID]; ok && a.isOf(kind, k) {
			out = append(out, p.UID)
		}
	}
	return out
}

// elsewhere waits until it was noticed that the file of an object is gone, and says where
// the object is written now; empty for nowhere.
func (m *Machine) elsewhere(ctx context.Context, kind string, k manifest.Key, file string) string {
	ctx, cancel := context.WithTimeout(ctx, reread)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if where := m.read().Where(kind, k); !strings.HasPrefix(where, file+":") {
			return where
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return "" // a source that is broken keeps what it had
		}
	}
}
