package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/internal/node/volume/growth"
	"fairlead.run/internal/node/volume/unsupported"
)

// Dirs are a pod's own folders.
type Dirs struct {
	Disk   string // survives a reboot; for what containers may write: emptyDir, and Files
	Memory string // on a tmpfs; for what comes from objects, and for mounts
	// CSI is where drivers mount the pod's volumes. Drivers see it by the same
	// path, and most are set up for the folder of a kubelet:
	// /var/lib/kubelet/pods/UID. Empty if the pod can have no such volumes.
	CSI string
}

// volumesFolder is in the first two of them, and has a folder for each volume.
const volumesFolder = "volumes"

// Files is where the files are that each container has from the node, and may write without
// any limit: its hosts file, and that for its last words. On a tmpfs they could take the
// memory of the node, and the room of all records there.
func (d Dirs) Files() string { return filepath.Join(d.Disk, "files") }

func (d Dirs) all() []string {
	return slices.DeleteFunc([]string{d.CSI, d.Memory, d.Disk}, func(dir string) bool { return dir == "" })
}

// Around is what volumes need beside the pod and its objects. A kind of volume
// that needs what is nil is refused by name.
type Around struct {
	// Allocatable is what pods may use of the node. It bounds memory volumes, and
	// stands for limits that are not set. Without it the whole node does.
	Allocatable corev1.ResourceList
	Tokens      Tokens
	Claims      Claims
	CSI         Plugin
	// Pods is the folder in which drivers mount volumes of pods, in one of each pod; see
	// Dirs.
	Pods string
	// Driver is the object of a CSI driver, or nil if the cluster has none. An error is
	// that nobody knows yet.
	Driver func(name string) (*storagev1.CSIDriver, error)
	// Node is this node, as the cluster has it; nil if that is not known yet. Where it is nil
	// itself, all PersistentVolumes are for this node.
	Node func() *corev1.Node
	// Attached waits until a volume is attached to this node, and returns what the
	// attachment says for the driver. Nil where nothing is attached.
	Attached func(ctx context.Context, pv *corev1.PersistentVolume) (map[string]string, error)
	// Growth is told of volumes that are to be larger; nil makes none larger.
	Growth Growth
	// Limit bounds what all volumes take together until they are mounted, and how long giving one
	// of them to the pod's group may make no progress; 0 is no limit.
	Limit time.Duration
	// Progress is told how many files of a folder were given to the pod's group, where that takes
	// long. It must not wait, and may be called for a moment after Prepare has ended. Nil tells
	// nobody.
	Progress func(dir string, files int)
	// Runs says that the pod has a sandbox, so that its volumes were prepared before.
	Runs bool
}

// With adds the folder in which drivers mount the volumes of a pod.
func (a Around) With(d Dirs, uid types.UID) Dirs {
	if name := string(uid); a.Pods != "" && name != "." && filepath.IsLocal(name) && filepath.Base(name) == name {
		d.CSI = filepath.Join(a.Pods, name)
	}
	return d
}

// Tokens makes tokens of pods' service accounts.
type Tokens interface {
	// Token is bound to the pod and good for so many seconds. An empty audience is
	// the API server's own; path is the file that it is for, or empty for a CSI
	// driver. It is to be asked for again at refreshAt.
	Token(ctx context.Context, pod *corev1.Pod, audience string, seconds int64, path string) (token string, refreshAt time.Time, err error)
}

// Claims finds claims and what they are bound to. What is missing is nil; an error is that
// nobody can say whether it is.
type Claims interface {
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// Plugin mounts volumes of CSI drivers; *csi.Client is one.
type Plugin interface {
	Publish(ctx context.Context, v csi.Volume) (csi.Published, error)
	Unpublish(ctx context.Context, target string) error
	// Expand grows what is mounted, if the driver does that.
	Expand(ctx context.Context, v csi.Volume, size int64) (bool, error)
	// Holds says whether the target was published and is mounted.
	Holds(target string) bool
	// Size is how large what is mounted there was when that was noted last, also by an agent
	// before this one; 0 if nobody has.
	Size(target string) int64
	NoteSize(target string, size int64) error
}

// Set is the volumes of one pod. One goroutine at a time uses it, but Usage may
// be called beside the others.
type Set struct {
	dirs    Dirs
	spec    *podspec.Context
	around  Around
	list    []corev1.Volume // of the pod; they never change
	volumes map[string]*mounted
	frozen  map[string]map[string][]byte // of immutable objects, by kind and name
	tokens  map[request]token
	refused map[string]error // by folder; see Refused
	shared  []string         // see Shared
	waited  time.Duration    // for objects, in this round; see collectSoon
}

// mounted is a volume as it is on this machine.
type mounted struct {
	path     string    // on the host; empty if the runtime has it
	own      bool      // belongs to the pod alone, or may be labelled for it
	readOnly bool      // nobody of the pod may write
	claim    string    // name of the PersistentVolumeClaim
	group    int64     // that its PersistentVolume is for; zero for none
	give     bool      // its files are to be the pod's group's, if it names one
	local    *local    // what it is, if it is a local one
	again    time.Time // when its driver is to be asked again; zero for never
	old      error     // why it is as it was before

	driven *csi.Volume // what a driver was asked for that may grow; nil else
	grows  time.Time   // when to look whether it has to
	grown  growth.Size
}

// Prepare makes the volumes of a pod, or finds those that are there already: it
// may be called again at any time, and disturbs no container. The Set goes on
// reading c, whose Pod may be replaced by a newer version of itself.
//
// An error is about every volume that is not ready. What was made stays for the
// next attempt; Remove takes it away.
func Prepare(ctx context.Context, c *podspec.Context, dirs Dirs, around Around) (*Set, error) {
	if dirs.Disk == "" || dirs.Memory == "" {
		return nil, fmt.Errorf("prepare volumes: no folders are given: %w", errdefs.ErrInternal)
	}
	s := &Set{
		dirs: dirs, spec: c, around: around, list: c.Pod.Spec.Volumes, volumes: map[string]*mounted{},
		frozen: map[string]map[string][]byte{}, tokens: map[request]token{}, refused: map[string]error{},
	}
	if err := s.mountAll(ctx); err != nil {
		return nil, err
	}
	if err := s.each(func(v *corev1.Volume) error { return s.give(ctx, s.volumes[v.Name]) }); err != nil {
		return nil, err
	}
	return s, nil
}

// each does something for all volumes, and has the errors of those that it cannot be done for.
func (s *Set) each(do func(*corev1.Volume) error) error {
	var errs []error
	for i := range s.list {
		if err := do(&s.list[i]); err != nil {
			errs = append(errs, fmt.Errorf("prepare volume %s: %w", s.list[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// mountAll makes all volumes, within Around.Limit.
func (s *Set) mountAll(ctx context.Context) error {
	if s.around.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.around.Limit)
		defer cancel()
	}
	return s.each(func(v *corev1.Volume) error {
		m, err := s.prepare(ctx, v)
		s.volumes[v.Name] = m
		return err
	})
}

func (s *Set) prepare(ctx context.Context, v *corev1.Volume) (*mounted, error) {
	switch {
	case v.Image != nil:
		return &mounted{readOnly: true}, nil // the runtime mounts it
	case v.HostPath != nil:
		return &mounted{path: v.HostPath.Path}, checkHostPath(ctx, v.HostPath)
	case v.EmptyDir != nil:
		return s.emptyDir(v)
	case hasContent(v):
		return s.content(ctx, v)
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return s.claim(ctx, v)
	case v.CSI != nil:
		return s.inline(ctx, v)
	}
	if err := unsupported.Kind(v); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("it names no kind of volume: %w", errdefs.ErrInvalidArgument)
}

// memoryPath is where volumes are that do not outlive the boot.
func (s *Set) memoryPath(volume string) string {
	return filepath.Join(s.dirs.Memory, volumesFolder, volume)
}

func (s *Set) group() *int64 {
	if sc := s.spec.Pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// volume is the pod's volume with that name, or nil.
func (s *Set) volume(name string) *corev1.Volume {
	for i := range s.list {
		if v := &s.list[i]; v.Name == name {
			return v
		}
	}
	return nil
}
