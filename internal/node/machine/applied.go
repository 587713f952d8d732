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

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/manifest/template"
	"fairlead.run/internal/node/source/changeset"
)

// appliedPrefix starts the names of files that were written by Apply, one for each
// object. All others in the folder belong to people.
const appliedPrefix = "applied."

// LeftOut is the change of an object that nobody here acts on, and that is kept nowhere.
const LeftOut = "left out"

// errNoFolder is why nothing can be applied.
var errNoFolder = fmt.Errorf("fairlead up has no folder of manifests that objects could be written to, as it was started with --manifests -: %w", errdefs.ErrPrecondition)

// Applied is what became of an object.
type Applied struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Change    string `json:"change"` // created, configured, unchanged, restarted, deleted or LeftOut
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
//
// Half of it is never seen: not by the source of the folder, which reads it before or after,
// and not after an end of the process in between, as the next one puts back what there was.
func (m *Machine) Apply(ctx context.Context, text []byte) ([]Applied, error) {
	if m.cfg.Manifests.Folder == "" {
		return nil, errNoFolder
	}
	given := manifest.Source{Name: "the manifest", Data: text}
	if _, err := manifest.DecodeFile(given); err != nil {
		return nil, err
	}
	objects, err := manifest.Singles(given)
	if err != nil {
		return nil, err
	}
	out, err := m.write(ctx, objects)
	if err != nil {
		return nil, err
	}
	m.settle(ctx, objects)
	return out, nil
}

// write writes objects, and takes over from their files what these have of restarts.
func (m *Machine) write(ctx context.Context, objects []manifest.Single) ([]Applied, error) {
	folder, err := m.cfg.Manifests.Changes.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer folder.Release()
	if err := m.stillRestarted(objects); err != nil {
		return nil, err
	}
	var changes []changeset.Change
	var faults []error
	out := make([]Applied, len(objects))
	for i, o := range objects {
		if o.Custom { // a file of its own would not say what it is
			out[i] = Applied{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Change: LeftOut}
			continue
		}
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
		if out[i].Change != "unchanged" {
			changes = append(changes, changeset.Change{Name: filepath.Base(file), Data: o.Text})
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if _, err := os.Stat(m.cfg.Manifests.Folder); errors.Is(err, os.ErrNotExist) { // one that is made would be taken for empty
		return nil, fmt.Errorf("the folder of manifests %s is gone, and what runs stays as it is; mount it, or make it if all but this is to go: %w", m.cfg.Manifests.Folder, errdefs.ErrPrecondition)
	}
	if err := folder.Change(changes...); err != nil {
		return nil, notWritten(err, out)
	}
	return out, nil
}

// notWritten says of which object that is, and what to do.
func notWritten(err error, all []Applied) error {
	what := "the objects"
	var why *changeset.Error
	if errors.As(err, &why) {
		for _, o := range all {
			if filepath.Base(o.File) == why.Name {
				what, err = o.Kind+" "+manifest.Key{Namespace: o.Namespace, Name: o.Name}.String(), errors.Join(why.Err, why.Undo)
			}
		}
	}
	return fmt.Errorf("write %s: %w%s; nothing is applied", what, err, hostpath.Advice(err))
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

// Delete takes an object away that was applied. It comes back when that was noticed, and
// while pods of it end.
func (m *Machine) Delete(ctx context.Context, kind string, k manifest.Key) (Applied, error) {
	if m.cfg.Manifests.Folder == "" {
		return Applied{}, errNoFolder
	}
	file := m.applied(kind, k)
	faults := slices.Concat(validation.IsDNS1123Label(strings.ToLower(kind)), validation.IsDNS1123Label(cmp.Or(k.Namespace, "default")), content.IsPathSegmentName(k.Name))
	if len(faults) > 0 { // it would be a path to another file
		return Applied{}, fmt.Errorf("%q %q is no name of an object: %s: %w", kind, k, strings.Join(faults, "; "), errdefs.ErrInvalidArgument)
	}
	pods := m.podsOf(kind, k)
	err := m.remove(ctx, file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Applied{}, m.notApplied(kind, k)
	case err != nil:
		return Applied{}, fmt.Errorf("delete %s %s: %w", kind, k, err)
	}
	out := Applied{Kind: kind, Namespace: k.Namespace, Name: k.Name, Change: "deleted", File: file}
	out.Elsewhere = m.elsewhere(ctx, kind, k)
	for _, uid := range m.podsOf(kind, k) { // which may have begun since
		if !slices.Contains(pods, uid) {
			pods = append(pods, uid)
		}
	}
	out.Pods = pods
	return out, nil
}

func (m *Machine) remove(ctx context.Context, file string) error {
	folder, err := m.cfg.Manifests.Changes.Lock(ctx)
	if err != nil {
		return err
	}
	defer folder.Release()
	return folder.Change(changeset.Change{Name: filepath.Base(file), Remove: true})
}

// claimant is the StatefulSet whose template a claim is of.
func (m *Machine) claimant(k manifest.Key) (manifest.Key, bool) {
	for _, w := range m.read().Workloads {
		if w.StatefulSet == nil {
			continue
		}
		for _, c := range template.Claims(w.StatefulSet) {
			if k == (manifest.Key{Namespace: c.Namespace, Name: c.Name}) {
				return w.Key(), true
			}
		}
	}
	return manifest.Key{}, false
}

// notApplied is why an object cannot be deleted that has no file of its own.
func (m *Machine) notApplied(kind string, k manifest.Key) error {
	if a, ok := m.ownedPod(k); ok && kind == "Pod" {
		advice := "delete that"
		if slices.Contains(restartable, a.kind) {
			advice += fmt.Sprintf(", or have its pods made anew: fairlead restart %s/%s -n %s", strings.ToLower(a.kind), a.of.Name, a.of.Namespace)
		}
		return fmt.Errorf("pod %s belongs to %s %s; %s: %w", k, a.kind, a.of, advice, errdefs.ErrPrecondition)
	}
	// What was deleted a moment ago is still known by the file that it had.
	if where := m.read().Where(kind, k); where != "" && !strings.HasPrefix(where, m.applied(kind, k)+":") {
		return fmt.Errorf("%s %s is written at %s; delete it there: %w", kind, k, where, errdefs.ErrPrecondition)
	}
	if kind == "PersistentVolumeClaim" {
		if set, ok := m.claimant(k); ok {
			return fmt.Errorf("claim %s belongs to StatefulSet %s, and what is in it stays when that goes; delete that, or have it ask for fewer replicas: %w", k, set, errdefs.ErrPrecondition)
		}
	}
	return fmt.Errorf("there is no %s %s: %w", kind, k, errdefs.ErrNotFound)
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

// podsOf are the pods of an object that there are or may be: those that the agent was asked
// for, if they have begun or not, those that it was asked for before and that end, and
// those of their names that an earlier agent has left.
func (m *Machine) podsOf(kind string, k manifest.Key) (out []types.UID) {
	present := m.agent.Present()
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]bool{}
	for _, pods := range []map[types.UID]ask{m.last.pods, m.last.going} {
		for uid, a := range pods {
			if a.isOf(kind, k) {
				names[a.key.String()] = true
				delete(present, uid)
				out = append(out, uid)
			}
		}
	}
	for uid, name := range present {
		if names[name] {
			out = append(out, uid)
		}
	}
	return out
}

// present are the pods that there are or may be, by UID.
func (m *Machine) present() map[types.UID]string {
	out := m.agent.Present()
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, a := range m.last.pods {
		out[uid] = a.key.String()
	}
	return out
}

// elsewhere waits until the agent was asked for pods without the file of an object that is
// gone, and says where the object is written now; empty for nowhere.
func (m *Machine) elsewhere(ctx context.Context, kind string, k manifest.Key) (where string) {
	file := m.applied(kind, k)
	noticed := m.await(ctx, func(settled *manifest.Objects) bool {
		where = settled.Where(kind, k)
		return !strings.HasPrefix(where, file+":")
	})
	if !noticed {
		return "" // a source that is broken keeps what it had
	}
	return where
}
