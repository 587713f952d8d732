package volume

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/internal/node/volume/unsupported"
)

// claim makes what a PersistentVolumeClaim is bound to.
func (s *Set) claim(ctx context.Context, v *corev1.Volume) (*mounted, error) {
	find := s.findClaim
	if s.volumes[v.Name] != nil { // it has it, and is only asked again
		find = s.findClaimSoon
	}
	pvc, err := find(ctx, v)
	if err != nil {
		return nil, err
	}
	pv, err := s.boundTo(ctx, pvc)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", pvc.Name, err)
	}
	readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	m, err := s.persistent(ctx, pv, readOnly)
	if err != nil {
		return nil, fmt.Errorf("claim %s, volume %s: %w", pvc.Name, pv.Name, err)
	}
	m.claim, m.group = pvc.Name, groupOf(pv)
	if pv.Spec.Local != nil {
		m.local = &local{volume: v.Name, name: pv.Name}
	}
	if was := s.volumes[v.Name]; was != nil {
		m.grown = was.grown
	}
	if m.driven != nil { // what does not grow is tried again, and the pod has what there is
		if err := s.grow(ctx, pvc, pv, m); err != nil {
			m.old, m.again = fmt.Errorf("claim %s: %w", pvc.Name, err), time.Now().Add(retryAfter)
		}
		m.grows = time.Now().Add(growEvery)
	}
	return m, nil
}

// annotationGroup of a PersistentVolume is the group that its files are for.
const annotationGroup = "pv.beta.kubernetes.io/gid"

// groupOf is zero if the volume names none. Nobody is put into root's.
func groupOf(pv *corev1.PersistentVolume) int64 {
	g, err := strconv.ParseInt(pv.Annotations[annotationGroup], 10, 32)
	if err != nil || g < 0 {
		return 0
	}
	return g
}

// Groups are those that PersistentVolumes say that they are for, with which all containers of
// the pod are to run.
func (s *Set) Groups() []int64 {
	var out []int64
	for _, m := range s.volumes {
		if m != nil && m.group != 0 {
			out = append(out, m.group)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// claimProtection is the finalizer by which a claim is not gone before the last pod that names
// it has ended.
const claimProtection = "kubernetes.io/pvc-protection"

// findClaim is the claim that a volume names, or that was made for the pod.
func (s *Set) findClaim(ctx context.Context, v *corev1.Volume) (*corev1.PersistentVolumeClaim, error) {
	if s.around.Claims == nil {
		return nil, fmt.Errorf("there are no PersistentVolumeClaims without a cluster; use hostPath: %w", errdefs.ErrUnimplemented)
	}
	pod, name := s.spec.Pod, ""
	if v.Ephemeral != nil {
		name = pod.Name + "-" + v.Name
	} else {
		name = v.PersistentVolumeClaim.ClaimName
	}
	pvc, err := s.around.Claims.Claim(ctx, pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	if pvc == nil {
		return nil, fmt.Errorf("PersistentVolumeClaim %s/%s is not there (yet): %w", pod.Namespace, name, errdefs.ErrNotFound)
	}
	if v.Ephemeral != nil && !metav1.IsControlledBy(pvc, pod) {
		return nil, fmt.Errorf("PersistentVolumeClaim %s/%s was not made for this pod; delete it, or rename the pod: %w", pod.Namespace, name, errdefs.ErrPrecondition)
	}
	// A protected one stays for as long as a pod names it, which is this one. A pod that runs
	// has it already, and goes on when the agent does.
	if pvc.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodRunning && !slices.Contains(pvc.Finalizers, claimProtection) {
		return nil, fmt.Errorf("PersistentVolumeClaim %s/%s is being deleted: %w", pod.Namespace, name, errdefs.ErrPrecondition)
	}
	return pvc, nil
}

// findClaimSoon is findClaim where the pod can go on without.
func (s *Set) findClaimSoon(ctx context.Context, v *corev1.Volume) (*corev1.PersistentVolumeClaim, error) {
	ctx, done := s.soon(ctx)
	defer done()
	return s.findClaim(ctx, v)
}

func (s *Set) boundTo(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "" {
		return nil, fmt.Errorf("it is not bound to a volume (yet): %w", errdefs.ErrUnavailable)
	}
	if unsupported.IsBlock(pvc.Spec.VolumeMode) {
		return nil, unsupported.ErrBlock
	}
	pv, err := s.around.Claims.Volume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	if pv == nil {
		return nil, fmt.Errorf("PersistentVolume %s is not there: %w", pvc.Spec.VolumeName, errdefs.ErrNotFound)
	}
	if r := pv.Spec.ClaimRef; r == nil || r.UID != pvc.UID {
		return nil, fmt.Errorf("PersistentVolume %s is bound to another claim: %w", pv.Name, errdefs.ErrPrecondition)
	}
	if unsupported.IsBlock(pv.Spec.VolumeMode) {
		return nil, unsupported.ErrBlock
	}
	return pv, s.reaches(pv)
}

// reaches refuses a volume that is for other nodes, for a pod that no scheduler has brought
// here: the folder of a local one would be another one on this node. A pod that runs has its
// volumes already, whatever the node's labels are by now.
func (s *Set) reaches(pv *corev1.PersistentVolume) error {
	a := pv.Spec.NodeAffinity
	if s.around.Node == nil || a == nil || a.Required == nil || s.spec.Pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	node := s.around.Node()
	if node == nil {
		return fmt.Errorf("the labels of this node are not known yet, for the nodeAffinity of PersistentVolume %s: %w", pv.Name, errdefs.ErrUnavailable)
	}
	selector, err := nodeaffinity.NewNodeSelector(a.Required)
	if err != nil {
		return fmt.Errorf("nodeAffinity of PersistentVolume %s: %w", pv.Name, err)
	}
	if !selector.Match(node) {
		return fmt.Errorf("PersistentVolume %s is not for this node, by its nodeAffinity; leave the choice of the node to the scheduler: %w", pv.Name, errdefs.ErrPrecondition)
	}
	return nil
}

func (s *Set) persistent(ctx context.Context, pv *corev1.PersistentVolume, readOnly bool) (*mounted, error) {
	switch {
	case pv.Spec.HostPath != nil:
		if len(pv.Spec.MountOptions) > 0 {
			return nil, fmt.Errorf("a hostPath takes no mountOptions: %w", errdefs.ErrInvalidArgument)
		}
		return &mounted{path: pv.Spec.HostPath.Path, readOnly: readOnly}, checkHostPath(ctx, pv.Spec.HostPath)
	case pv.Spec.Local != nil:
		return s.local(ctx, pv, readOnly)
	case pv.Spec.CSI != nil:
		m, err := s.persistentCSI(ctx, pv, readOnly)
		return s.keep(m, err, mounted{path: s.target(pv.Name), readOnly: readOnly || pv.Spec.CSI.ReadOnly})
	}
	return nil, fmt.Errorf("only PersistentVolumes of the kinds hostPath, local and csi are supported; %s: %w", unsupported.InsteadCSI, errdefs.ErrUnimplemented)
}

// local is a folder of the node, which outlives the pod and is given to its group.
func (s *Set) local(ctx context.Context, pv *corev1.PersistentVolume, readOnly bool) (*mounted, error) {
	path := pv.Spec.Local.Path
	if len(pv.Spec.MountOptions) > 0 {
		return nil, fmt.Errorf("mountOptions of a local volume are not supported; mount %s with them on the node: %w", path, errdefs.ErrUnimplemented)
	}
	err := look(ctx, path, func() error {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a folder; a device is to be mounted on the node first: %w", path, errdefs.ErrPrecondition)
		}
		return err
	})
	return &mounted{path: path, own: !readOnly, readOnly: readOnly, give: !readOnly}, err
}

// The keys by which a driver that asks for it learns of the pod.
const (
	contextPod       = "csi.storage.k8s.io/pod.name"
	contextNamespace = "csi.storage.k8s.io/pod.namespace"
	contextUID       = "csi.storage.k8s.io/pod.uid"
	contextAccount   = "csi.storage.k8s.io/serviceAccount.name"
	contextEphemeral = "csi.storage.k8s.io/ephemeral"
	contextTokens    = "csi.storage.k8s.io/serviceAccount.tokens"
)

// republishAfter is how often a driver is asked again that wants to be.
const republishAfter = 90 * time.Second

// target is where a driver mounts a volume: the path that drivers know from a
// kubelet, below the pod's folder.
func (s *Set) target(name string) string { return filepath.Join(csiFolder(s.dirs), name, "mount") }

func csiFolder(d Dirs) string { return filepath.Join(d.CSI, "volumes", "kubernetes.io~csi") }

func (s *Set) persistentCSI(ctx context.Context, pv *corev1.PersistentVolume, readOnly bool) (*mounted, error) {
	source := pv.Spec.CSI
	v := csi.Volume{
		Driver: source.Driver, Handle: source.VolumeHandle, FSType: source.FSType, MountFlags: pv.Spec.MountOptions,
		ReadOnly: readOnly || source.ReadOnly, Attributes: source.VolumeAttributes,
		AccessModes: pv.Spec.AccessModes, Target: s.target(pv.Name),
	}
	var err error
	if v.StageSecrets, err = s.secretOf(ctx, source.NodeStageSecretRef); err != nil {
		return nil, err
	}
	if v.PublishSecrets, err = s.secretOf(ctx, source.NodePublishSecretRef); err != nil {
		return nil, err
	}
	if v.ExpandSecrets, err = s.secretOf(ctx, source.NodeExpandSecretRef); err != nil {
		return nil, err
	}
	driver, err := s.driver(source.Driver)
	if err != nil {
		return nil, err
	}
	if driver != nil && len(driver.Spec.VolumeLifecycleModes) > 0 && !slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent) {
		return nil, fmt.Errorf("CSI driver %s makes volumes for single pods only, as its CSIDriver object says (volumeLifecycleModes); use an inline volume: %w", source.Driver, errdefs.ErrInvalidArgument)
	}
	if s.around.Attached != nil && (driver == nil || driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired) {
		v.Attach = func(ctx context.Context) (map[string]string, error) { return s.around.Attached(ctx, pv) }
	}
	m, err := s.publishCSI(ctx, v, driver)
	if err == nil && !v.ReadOnly && s.around.Growth != nil {
		m.driven = &v
	}
	return m, err
}

// keep has what is mounted already when it cannot be published again, so that
// neither a driver that is restarted nor an API server that is away holds up a pod
// that runs. One that does not run yet may not have it whole: its group comes after its mount.
// Update tries again, and tells: not at once, as drivers register a moment
// after the agent has begun.
func (s *Set) keep(m *mounted, err error, was mounted) (*mounted, error) {
	if err == nil || !s.around.Runs || s.around.CSI == nil || s.dirs.CSI == "" || !s.around.CSI.Holds(was.path) {
		return m, err
	}
	was.own, was.old, was.again = !was.readOnly, err, time.Now().Add(retryAfter)
	return &was, nil
}

// inline is a volume that a driver makes for the pod alone.
func (s *Set) inline(ctx context.Context, of *corev1.Volume) (*mounted, error) {
	m, err := s.inlineCSI(ctx, of)
	return s.keep(m, err, mounted{path: s.target(of.Name), readOnly: of.CSI.ReadOnly != nil && *of.CSI.ReadOnly})
}

func (s *Set) inlineCSI(ctx context.Context, of *corev1.Volume) (*mounted, error) {
	source := of.CSI
	driver, err := s.driver(source.Driver)
	if err != nil {
		return nil, err
	}
	// A driver has to say that it does: whoever may create pods could else have it mount
	// any volume that it knows.
	if driver == nil || !slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) {
		return nil, fmt.Errorf("CSI driver %s makes no volumes for single pods, as no CSIDriver object says so (volumeLifecycleModes); use a PersistentVolumeClaim: %w", source.Driver, errdefs.ErrInvalidArgument)
	}
	v := csi.Volume{
		Driver: source.Driver, Inline: true, Attributes: source.VolumeAttributes,
		Handle: fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(s.spec.Pod.UID)+"/"+of.Name))),
		Target: s.target(of.Name), ReadOnly: source.ReadOnly != nil && *source.ReadOnly,
	}
	if source.FSType != nil {
		v.FSType = *source.FSType
	}
	if r := source.NodePublishSecretRef; r != nil {
		if v.PublishSecrets, err = s.secretOf(ctx, &corev1.SecretReference{Name: r.Name, Namespace: s.spec.Pod.Namespace}); err != nil {
			return nil, err
		}
	}
	return s.publishCSI(ctx, v, driver)
}

func (s *Set) driver(name string) (*storagev1.CSIDriver, error) {
	if s.around.Driver == nil {
		return nil, nil
	}
	return s.around.Driver(name)
}

func (s *Set) secretOf(ctx context.Context, r *corev1.SecretReference) (map[string]string, error) {
	if r == nil {
		return nil, nil
	}
	secret, err := s.spec.Objects.Secret(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s for the CSI driver: %w", r.Namespace, r.Name, err)
	}
	if secret == nil {
		return nil, fmt.Errorf("the Secret %s/%s for the CSI driver is missing: %w", r.Namespace, r.Name, errdefs.ErrNotFound)
	}
	out := map[string]string{}
	for k, v := range secret.Data {
		out[k] = string(v)
	}
	return out, nil
}

// publishCSI has a volume mounted as its driver wants it, whose object may be nil.
func (s *Set) publishCSI(ctx context.Context, v csi.Volume, driver *storagev1.CSIDriver) (*mounted, error) {
	if s.around.CSI == nil || s.dirs.CSI == "" {
		return nil, fmt.Errorf("volumes of CSI drivers (%s) are not supported here: %w", v.Driver, errdefs.ErrUnimplemented)
	}
	wants := storagev1.CSIDriverSpec{}
	if driver != nil {
		wants = driver.Spec
	}
	v.PodInfo = map[string]string{}
	if wants.PodInfoOnMount != nil && *wants.PodInfoOnMount {
		pod := s.spec.Pod
		v.PodInfo[contextPod], v.PodInfo[contextNamespace], v.PodInfo[contextUID] = pod.Name, pod.Namespace, string(pod.UID)
		v.PodInfo[contextAccount], v.PodInfo[contextEphemeral] = pod.Spec.ServiceAccountName, strconv.FormatBool(v.Inline)
	}
	if err := s.giveTokens(ctx, &v, wants); err != nil {
		return nil, err
	}
	v.Group = s.group()
	done, err := s.around.CSI.Publish(ctx, v)
	if err != nil {
		return nil, err
	}
	m := &mounted{path: v.Target, own: !v.ReadOnly, readOnly: v.ReadOnly}
	if wants.RequiresRepublish != nil && *wants.RequiresRepublish {
		m.again = time.Now().Add(republishAfter)
	}
	m.give = !done.GroupSet && takesGroup(wants.FSGroupPolicy, v)
	return m, nil
}

// giveTokens hands the driver the tokens of the pod that it wants, as JSON by their
// audience.
func (s *Set) giveTokens(ctx context.Context, v *csi.Volume, wants storagev1.CSIDriverSpec) error {
	if len(wants.TokenRequests) == 0 {
		return nil
	}
	type answer struct {
		Token               string    `json:"token"`
		ExpirationTimestamp time.Time `json:"expirationTimestamp"`
	}
	all := map[string]answer{}
	for _, want := range wants.TokenRequests {
		r := request{audience: want.Audience, seconds: defaultExpiry}
		if want.ExpirationSeconds != nil {
			r.seconds = *want.ExpirationSeconds
		}
		t, err := s.fresh(ctx, r)
		if err != nil {
			return fmt.Errorf("CSI driver %s: tokenRequests: %w", v.Driver, err)
		}
		all[want.Audience] = answer{t.text, t.expires()}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("CSI driver %s: write tokens: %w", v.Driver, err)
	}
	if in := wants.ServiceAccountTokenInSecrets; in != nil && *in {
		if v.PublishSecrets == nil {
			v.PublishSecrets = map[string]string{}
		}
		v.PublishSecrets[contextTokens] = string(data)
		return nil
	}
	v.PodInfo[contextTokens] = string(data)
	return nil
}

// expires reads the time out of a token. Of one that does not tell, it is when the
// token is to be renewed.
func (t token) expires() time.Time {
	parts := strings.Split(t.text, ".")
	if len(parts) != 3 {
		return t.refreshAt.UTC()
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(data, &claims) != nil || claims.Expires == 0 {
		return t.refreshAt.UTC()
	}
	return time.Unix(claims.Expires, 0).UTC()
}

// takesGroup says whether the files of a volume may be given to a group, by what
// its driver has declared. An inline volume is one pod's alone.
func takesGroup(policy *storagev1.FSGroupPolicy, v csi.Volume) bool {
	if v.ReadOnly {
		return false
	}
	if policy != nil && *policy != storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy {
		return *policy == storagev1.FileFSGroupPolicy
	}
	once := v.Inline || slices.Contains(v.AccessModes, corev1.ReadWriteOnce) || slices.Contains(v.AccessModes, corev1.ReadWriteOncePod)
	return v.FSType != "" && once
}

// republish asks a driver again that wants to be asked, as for new credentials.
func (s *Set) republish(ctx context.Context, v *corev1.Volume, m *mounted) (next time.Time, err error) {
	if time.Now().Before(m.again) {
		return m.again, nil
	}
	if s.around.Limit > 0 { // what runs has the volume, and is not to be left alone for it
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.around.Limit)
		defer cancel()
	}
	fresh, err := s.prepare(ctx, v)
	if err == nil {
		err = s.give(ctx, fresh)
	}
	if err != nil {
		return time.Time{}, err
	}
	m.again, m.driven, m.grows, m.grown = fresh.again, fresh.driven, fresh.grows, fresh.grown
	return m.again, fresh.old
}

// Release has drivers unmount what they have mounted for a pod, of which nothing runs
// any more, so that others can have it. It may be called again until it succeeds.
func Release(ctx context.Context, dirs Dirs, plugin Plugin) error {
	if err := forgetLocal(dirs); err != nil {
		return fmt.Errorf("release local volumes: %w", err)
	}
	if dirs.CSI == "" {
		return nil
	}
	entries, err := os.ReadDir(csiFolder(dirs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list volumes of CSI drivers: %w", err)
	}
	if err := unmountBelow(subPaths(dirs)); err != nil { // of these volumes, too: a device would be in use
		return err
	}
	var errs []error
	for _, e := range entries {
		if plugin == nil {
			return fmt.Errorf("CSI drivers have mounted volumes in %s, and none can be called from here: %w", dirs.CSI, errdefs.ErrUnimplemented)
		}
		if err := plugin.Unpublish(ctx, filepath.Join(csiFolder(dirs), e.Name(), "mount")); err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}
