package volume

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/internal/node/volume/csi/csitest"
)

// claims knows one claim and one volume.
type claims struct {
	claim *corev1.PersistentVolumeClaim
	pv    *corev1.PersistentVolume
}

func (c claims) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if c.claim == nil || c.claim.Namespace != namespace || c.claim.Name != name {
		return nil, nil
	}
	return c.claim, nil
}

func (c claims) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	if c.pv == nil || c.pv.Name != name {
		return nil, nil
	}
	return c.pv, nil
}

// bound is a claim and a volume that are bound to each other.
func bound(s corev1.PersistentVolumeSource) claims {
	return claims{
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "claim-uid"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: s, ClaimRef: &corev1.ObjectReference{UID: "claim-uid"},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		}},
	}
}

func claimPod(readOnly bool) *podspec.Context {
	c := podContext(source(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: readOnly}}))
	c.Pod.UID = "pod-uid"
	return c
}

func TestClaimsOfFolders(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	put(t, filepath.Join(dir, "f"), "")
	d := testDirs(t)
	for _, readOnly := range []bool{false, true} {
		c := claimPod(readOnly)
		c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
		s, err := Prepare(t.Context(), c, d, Around{Claims: bound(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}})})
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Mounts(t.Context(), &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}})
		if err != nil || m[0].GetHostPath() != dir || m[0].GetReadonly() != readOnly || m[0].GetSelinuxRelabel() {
			t.Errorf("%v %v", m, err)
		}
		if got := owner(t, filepath.Join(dir, "f")); got != "0 600" {
			t.Errorf("a hostPath is the host's: %s", got)
		}
	}
	c := claimPod(false)
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
	s, err := Prepare(t.Context(), c, d, Around{Claims: bound(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}})})
	if err != nil {
		t.Fatal(err)
	}
	if got := owner(t, filepath.Join(dir, "f")); got != "2000 660" {
		t.Errorf("a local volume is the pod's group's: %s", got)
	}
	if u, err := usage(t.Context(), s); err != nil || len(u) != 1 || u[0].Claim != "data" || u[0].Local || u[0].Capacity <= 0 {
		t.Errorf("%+v %v", u, err)
	}
	if err := Remove(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); err != nil {
		t.Errorf("removing the pod touched the volume: %v", err)
	}
}

// TestLocalVolumeOfSeveralPods belongs to the group of the first pod for as long as any has it, as
// with a kubelet; the others are told.
func TestLocalVolumeOfSeveralPods(t *testing.T) {
	needRoot(t)
	dir, pods := t.TempDir(), t.TempDir()
	put(t, filepath.Join(dir, "f"), "")
	dirs := func(pod string) Dirs {
		d := Dirs{Disk: filepath.Join(pods, "disk", pod), Memory: filepath.Join(pods, "memory", pod)}
		t.Cleanup(func() { _ = Remove(context.Background(), d, nil) })
		return d
	}
	has := bound(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}})
	begin := func(pod string, group int64, runs bool, want ...string) {
		t.Helper()
		c := claimPod(false)
		if group != 0 {
			c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
		}
		s, err := Prepare(t.Context(), c, dirs(pod), Around{Claims: has, Runs: runs})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(s.Shared(), want) {
			t.Errorf("pod %s is told %q, want %q", pod, s.Shared(), want)
		}
	}
	whose := func(want string) {
		t.Helper()
		if got := owner(t, filepath.Join(dir, "f")); got != want {
			t.Errorf("the volume is %s, want %s", got, want)
		}
	}
	begin("a", 2000, false)
	whose("2000 660")
	begin("b", 3000, false, "volume pv keeps the group 2000, as another pod has it, and is not given to 3000 (fsGroup of this pod); give pods that share it the same fsGroup")
	whose("2000 660")
	begin("c", 2000, false) // of the same group
	begin("d", 0, false)    // of none
	// A restart of the agent finds what was decided, and tells nobody again. The first goes on
	// giving what has come since.
	put(t, filepath.Join(dir, "g"), "")
	begin("b", 3000, true)
	whose("2000 660")
	begin("a", 2000, true)
	if got := owner(t, filepath.Join(dir, "g")); got != "2000 660" {
		t.Errorf("a new file is %s", got)
	}
	// One that is still there without using it is none of them.
	for _, pod := range []string{"a", "b", "c"} {
		if err := Release(t.Context(), dirs(pod), nil); err != nil {
			t.Fatal(err)
		}
	}
	begin("e", 4000, false, "volume pv keeps the group 2000, as another pod has it, and is not given to 4000 (fsGroup of this pod); give pods that share it the same fsGroup")
	for _, pod := range []string{"d", "e"} {
		if err := Remove(t.Context(), dirs(pod), nil); err != nil {
			t.Fatal(err)
		}
	}
	begin("f", 4000, false)
	whose("4000 660")
}

func TestClaimsThatCannotBeHad(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	for _, tt := range []struct {
		want   string
		change func(*claims)
	}{
		{"PersistentVolumeClaim default/data is not there", func(c *claims) { c.claim = nil }},
		{"is being deleted", func(c *claims) { c.claim.DeletionTimestamp = &metav1.Time{} }},
		{"it is not bound to a volume (yet)", func(c *claims) { c.claim.Status.Phase = corev1.ClaimPending }},
		{"PersistentVolume pv is not there", func(c *claims) { c.pv = nil }},
		{"PersistentVolume pv is bound to another claim", func(c *claims) { c.pv.Spec.ClaimRef.UID = "other" }},
		{"volumeMode Block is not supported", func(c *claims) { c.claim.Spec.VolumeMode = &block }},
		{"volumeMode Block is not supported", func(c *claims) { c.pv.Spec.VolumeMode = &block }},
		{"only PersistentVolumes of the kinds hostPath, local and csi are supported", func(c *claims) {
			c.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}
		}},
		{"mountOptions", func(c *claims) { c.pv.Spec.MountOptions = []string{"ro"} }},
		{"volumes of CSI drivers (x.csi) are not supported here", func(c *claims) {
			c.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "x.csi"}}
		}},
		{"is not a folder", func(c *claims) {
			c.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/dev/null"}}
		}},
	} {
		c := bound(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
		tt.change(&c)
		if _, err := Prepare(t.Context(), claimPod(false), testDirs(t), Around{Claims: c}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	if _, err := prepare(claimPod(false), testDirs(t)); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Errorf("without a cluster: %v", err)
	}
}

// TestClaimThatIsBeingDeleted stays with a pod that runs, also when another agent finds it, and
// is there for others as long as it is protected.
func TestClaimThatIsBeingDeleted(t *testing.T) {
	has := bound(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
	has.claim.DeletionTimestamp = &metav1.Time{}
	for _, finalizers := range [][]string{{"example.com/wait"}, {"example.com/wait", "kubernetes.io/pvc-protection"}} {
		has.claim.Finalizers = finalizers
		for phase, running := range map[corev1.PodPhase]bool{"": false, corev1.PodPending: false, corev1.PodRunning: true} {
			c := claimPod(false)
			c.Pod.Status.Phase = phase
			if _, err := Prepare(t.Context(), c, testDirs(t), Around{Claims: has}); (err == nil) != (running || len(finalizers) == 2) {
				t.Errorf("phase %q, finalizers %q: %v", phase, finalizers, err)
			}
		}
	}
}

// A pod that names its node itself may come to one that its volume is not for, where the same
// folder is another one.
func TestClaimThatIsForOtherNodes(t *testing.T) {
	has := bound(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: t.TempDir()}})
	has.pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"here"}}},
	}}}}
	labelled := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelHostname: name}}}
	}
	for _, tt := range []struct {
		node  *corev1.Node
		phase corev1.PodPhase
		want  string
	}{
		{labelled("here"), "", ""},
		{labelled("there"), "", "PersistentVolume pv is not for this node"},
		{labelled("there"), corev1.PodRunning, ""},
		{nil, "", "the labels of this node are not known yet"},
	} {
		c := claimPod(false)
		c.Pod.Status.Phase = tt.phase
		_, err := Prepare(t.Context(), c, testDirs(t), Around{Claims: has, Node: func() *corev1.Node { return tt.node }})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestGroupsOfVolumes(t *testing.T) {
	for text, want := range map[string][]int64{"": nil, "1234": {1234}, "0": nil, "-1": nil, "x": nil} {
		has := bound(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
		has.pv.Annotations = map[string]string{annotationGroup: text}
		c := claimPod(false)
		other := *c.Pod.Spec.Volumes[0].DeepCopy()
		other.Name = "w"
		c.Pod.Spec.Volumes = append(c.Pod.Spec.Volumes, other)
		s, err := Prepare(t.Context(), c, testDirs(t), Around{Claims: has})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Groups(); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestEphemeralClaims(t *testing.T) {
	c := podContext(source(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}))
	c.Pod.UID = "pod-uid"
	has := bound(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
	has.claim.Name = "web-v"
	if _, err := Prepare(t.Context(), c, testDirs(t), Around{Claims: has}); err == nil || !strings.Contains(err.Error(), "was not made for this pod") {
		t.Error(err)
	}
	has.claim.OwnerReferences = []metav1.OwnerReference{{UID: "pod-uid", Controller: ptr(true)}}
	s, err := Prepare(t.Context(), c, testDirs(t), Around{Claims: has})
	if err != nil || s.volumes["v"].claim != "web-v" {
		t.Error(err)
	}
}

// drivers is a machine with one CSI driver.
type drivers struct {
	*csitest.Driver
	client *csi.Client
	around Around
	root   string
	object *storagev1.CSIDriver
}

func newDrivers(t *testing.T, d *csitest.Driver) *drivers {
	needRoot(t)
	socket := csitest.Serve(t, d)
	out := &drivers{Driver: d, root: t.TempDir()}
	out.client = csi.New(csi.Config{
		Socket:  func(string) (string, error) { return socket, nil },
		Staging: filepath.Join(out.root, "plugins"), Timeout: time.Minute,
	})
	out.around = Around{CSI: out.client, Driver: func(string) (*storagev1.CSIDriver, error) { return out.object, nil }}
	return out
}

// pod is a pod's folders, which are removed with the test.
func (d *drivers) pod(t *testing.T, uid string) Dirs {
	dirs := Dirs{Disk: filepath.Join(d.root, "disk", uid), Memory: filepath.Join(d.root, "memory", uid), CSI: filepath.Join(d.root, "pods", uid)}
	t.Cleanup(func() {
		if err := Remove(context.Background(), dirs, d.client); err != nil {
			t.Error(err)
		}
	})
	return dirs
}

func csiClaims() claims {
	return bound(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: "test.csi", VolumeHandle: "vol", FSType: "ext4", VolumeAttributes: map[string]string{"a": "1"},
		NodeStageSecretRef: &corev1.SecretReference{Namespace: "kube-system", Name: "s"},
	}})
}

func TestClaimOfADriver(t *testing.T) {
	m := newDrivers(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}})
	m.object = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PodInfoOnMount: ptr(true), RequiresRepublish: ptr(true)}}
	m.around.Claims = csiClaims()
	m.around.Attached = func(context.Context, *corev1.PersistentVolume) (map[string]string, error) {
		return map[string]string{"device": "sdb"}, nil
	}
	c, dirs := claimPod(false), m.pod(t, "pod-uid")
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
	s, err := Prepare(t.Context(), c, dirs, m.around)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := s.Mounts(t.Context(), &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "v", MountPath: "/sub", SubPath: "sub"}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dirs.CSI, "volumes/kubernetes.io~csi/pv/mount"); mounts[0].GetHostPath() != want || !mounts[0].GetSelinuxRelabel() {
		t.Errorf("%v", mounts[0])
	}
	// It is a mount of its own, which keeps the volume in use until it is gone.
	put(t, filepath.Join(mounts[1].GetHostPath(), "f"), "kept")
	if got := owner(t, mounts[0].GetHostPath()); got != "2000 2775" {
		t.Errorf("fsGroup: %s", got)
	}
	stage, publish := m.Calls()[0].(*spec.NodeStageVolumeRequest), m.Calls()[1].(*spec.NodePublishVolumeRequest)
	if stage.GetSecrets()["p"] != "secret" || publish.GetPublishContext()["device"] != "sdb" {
		t.Errorf("%v %v", stage, publish)
	}
	if a := publish.GetVolumeContext(); a["a"] != "1" || a[contextPod] != "web" || a[contextUID] != "pod-uid" || a[contextEphemeral] != "false" {
		t.Errorf("attributes %v", a)
	}
	if a := stage.GetVolumeContext(); len(a) != 1 || a["a"] != "1" {
		t.Errorf("it is staged for all pods of the node, with attributes %v", a)
	}
	if u, err := usage(t.Context(), s); err != nil || len(u) != 1 || u[0].Claim != "data" || u[0].Capacity <= 0 {
		t.Errorf("%+v %v", u, err)
	}
	// An agent that was started since finds it; and the driver is asked again in time.
	s, err = Prepare(t.Context(), c, dirs, m.around)
	if err != nil {
		t.Fatal(err)
	}
	if next := update(t, s, false); next.IsZero() || len(m.Calls()) != 3 {
		t.Errorf("%v, %d calls", next, len(m.Calls()))
	}
	s.volumes["v"].again = time.Now()
	if next := update(t, s, false); !next.After(time.Now()) || len(m.Calls()) != 4 {
		t.Errorf("%v, %d calls", next, len(m.Calls()))
	}
	// So it does while nobody can be asked, and tells.
	away := m.around
	away.Attached = func(context.Context, *corev1.PersistentVolume) (map[string]string, error) {
		return nil, errdefs.ErrUnavailable
	}
	if _, err = Prepare(t.Context(), c, dirs, away); !errors.Is(err, errdefs.ErrUnavailable) { // it may not be its group's yet
		t.Errorf("of a pod that does not run: %v", err)
	}
	away.Runs = true
	if s, err = Prepare(t.Context(), c, dirs, away); err != nil || s.volumes["v"].path != mounts[0].GetHostPath() || !s.volumes["v"].own {
		t.Fatal(err)
	}
	if next := update(t, s, false); !next.After(time.Now()) { // not at once
		t.Error(next)
	}
	s.volumes["v"].again = time.Now()
	if _, next, err := s.Update(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) || !next.After(time.Now()) {
		t.Error(next, err)
	}
	s.around = m.around
	if next := update(t, s, false); !next.After(time.Now()) || s.volumes["v"].again != next {
		t.Error(next)
	}
	// A pod that does not have it yet waits.
	if _, err = Prepare(t.Context(), c, m.pod(t, "other"), away); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
	// The pod goes, the data stays.
	if err := Remove(t.Context(), dirs, nil); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Errorf("without a client: %v", err)
	}
	m.Fail("NodeUnstageVolume", status.Error(codes.Unavailable, "later"))
	if err := Remove(t.Context(), dirs, m.client); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
	if err := Remove(t.Context(), dirs, m.client); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(m.Data, "vol", "sub", "f")); string(data) != "kept" {
		t.Error(err)
	}
	if left := mountsBelow(t, m.root); len(left) > 0 {
		t.Errorf("left: %v", left[0].Mountpoint)
	}
}

// growing notes what is said of a claim, and says it there.
type growing struct{ told []string }

func (g *growing) Begins(_ context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	g.told = append(g.told, "begins")
	return claim, nil
}

func (g *growing) Done(_ context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	g.told = append(g.told, size.String())
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	claim.Status.AllocatedResourceStatuses = nil
	return nil
}

func (g *growing) Refused(_ context.Context, _ *corev1.PersistentVolumeClaim, why error, never bool) error {
	g.told = append(g.told, fmt.Sprintf("refused, never %t: %v", never, status.Code(why)))
	return nil
}

func (g *growing) Tell(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, reason, message string) {
	g.told = append(g.told, pod.Name+" "+claim.Name+" "+reason+": "+message)
}

// TestDriversThatGrowForLong has a driver that takes long over it hold up no pod that runs.
func TestDriversThatGrowForLong(t *testing.T) {
	t.Parallel()
	m := newDrivers(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_EXPAND_VOLUME}})
	one, two := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	has := csiClaims()
	has.claim.Spec.Resources.Requests, has.claim.Status.Capacity, has.pv.Spec.Capacity = one, one, one
	m.around.Claims, m.around.Growth = has, &growing{}
	s, err := Prepare(t.Context(), claimPod(false), m.pod(t, "pod-uid"), m.around)
	if err != nil {
		t.Fatal(err)
	}
	has.claim.Spec.Resources.Requests, has.pv.Spec.Capacity = two, two
	m.StopAt("NodeExpandVolume")
	s.volumes["v"].grows = time.Now()
	began := time.Now()
	if _, _, err := s.Update(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 30*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	if next := time.Until(s.volumes["v"].grows); next <= 0 || next > growingAgain {
		t.Errorf("it is looked at again in %s", next)
	}
}

// TestClaimsThatGrow has a driver grow what is mounted, when the pod starts and while it
// runs, and tries again what fails.
func TestClaimsThatGrow(t *testing.T) {
	can := []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, spec.NodeServiceCapability_RPC_EXPAND_VOLUME}
	m := newDrivers(t, &csitest.Driver{Abilities: can})
	of := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	has := csiClaims()
	has.claim.Spec.Resources.Requests, has.claim.Status.Capacity, has.pv.Spec.Capacity = of("2Gi"), of("1Gi"), of("2Gi")
	has.pv.Spec.CSI.NodeExpandSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "s"}
	m.around.Claims = has
	g := &growing{}
	m.around.Growth = g
	grows := func(s *Set) {
		t.Helper()
		if s.volumes["v"].grows.Before(time.Now()) {
			t.Error("it is not looked at again")
		}
		s.volumes["v"].grows, s.volumes["v"].again = time.Now(), time.Time{}
	}
	dirs := m.pod(t, "pod-uid")
	m.Fail("NodeExpandVolume", status.Error(codes.Internal, "not now"))
	pod := claimPod(false)
	pod.Pod.Spec.NodeName = "n"
	s, err := Prepare(t.Context(), pod, dirs, m.around)
	if err != nil || len(g.told) > 0 {
		t.Fatal(err, g.told)
	}
	s.volumes["v"].again = time.Now()
	update(t, s, false) // tries again
	if r, ok := m.Calls()[len(m.Calls())-1].(*spec.NodeExpandVolumeRequest); !ok || r.GetCapacityRange().GetRequiredBytes() != 2<<30 ||
		r.GetVolumePath() != s.volumes["v"].path || !strings.HasSuffix(r.GetStagingTargetPath(), "globalmount") || r.GetSecrets()["p"] != "secret" {
		t.Errorf("%v", m.Calls())
	}
	calls := len(m.Calls())
	grows(s)
	update(t, s, false) // nothing new
	has.claim.Spec.Resources.Requests, has.pv.Spec.Capacity = of("3Gi"), of("3Gi")
	update(t, s, false) // not looked at yet
	const event = `web data FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" n`
	expect := func(more int, want ...string) {
		t.Helper()
		if !slices.Equal(g.told, want) || len(m.Calls()) != calls+more {
			t.Errorf("told %q, want %q; %d calls more, want %d", g.told, want, len(m.Calls())-calls, more)
		}
		calls, g.told = len(m.Calls()), nil
	}
	expect(0, event, "2Gi")
	grows(s)
	update(t, s, false)
	expect(1, event, "3Gi")
	has.claim.Spec.Resources.Requests, has.pv.Spec.Capacity = of("4Gi"), of("4Gi")
	m.Fail("NodeExpandVolume", status.Error(codes.Internal, "no more"))
	grows(s)
	if _, _, err := s.Update(t.Context()); err == nil || !strings.Contains(err.Error(), "claim data: CSI driver test.csi: NodeExpandVolume") {
		t.Error(err)
	}
	expect(1)
	// A controller that says how it stands waits for its turn, and hears what a driver has refused.
	storage := func(status corev1.ClaimResourceStatus) map[corev1.ResourceName]corev1.ClaimResourceStatus {
		return map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: status}
	}
	has.claim.Status.AllocatedResources, has.claim.Status.AllocatedResourceStatuses = of("4Gi"), storage(corev1.PersistentVolumeClaimControllerResizeInProgress)
	grows(s)
	update(t, s, false)
	expect(0)
	has.claim.Status.AllocatedResourceStatuses = storage(corev1.PersistentVolumeClaimNodeResizePending)
	m.Fail("NodeExpandVolume", status.Error(codes.OutOfRange, "too large"))
	grows(s)
	if _, _, err := s.Update(t.Context()); err == nil {
		t.Error("it has grown")
	}
	expect(1, "begins", "refused, never true: OutOfRange")
	grows(s)
	update(t, s, false)
	expect(1, "begins", event, "4Gi")
	// What another node has done this one does, too, and has nothing to say in the claim.
	has.claim.Spec.Resources.Requests, has.pv.Spec.Capacity, has.claim.Status.Capacity = of("5Gi"), of("5Gi"), of("5Gi")
	has.claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	grows(s)
	update(t, s, false)
	expect(1, event)
	grows(s)
	update(t, s, false)
	expect(0)
	m.Abilities = can[:1] // this driver does not do that at all
	has.claim.Status.AllocatedResources = nil
	has.claim.Spec.Resources.Requests, has.pv.Spec.Capacity = of("6Gi"), of("6Gi")
	grows(s)
	update(t, s, false)
	expect(0)
}

// TestGrowthOutlivesTheAgent makes what is mounted larger if another node has done so while no
// agent was there, once.
func TestGrowthOutlivesTheAgent(t *testing.T) {
	m := newDrivers(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_EXPAND_VOLUME}})
	has := csiClaims()
	has.claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	m.around.Claims, m.around.Growth = has, &growing{}
	dirs, pod := m.pod(t, "pod-uid"), claimPod(false)
	for i, tt := range []struct {
		size string
		want int
	}{{"1Gi", 0}, {"1Gi", 0}, {"2Gi", 1}, {"2Gi", 0}} {
		now := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(tt.size)}
		has.claim.Spec.Resources.Requests, has.claim.Status.Capacity, has.pv.Spec.Capacity = now, now, now
		before := len(m.Calls())
		if _, err := Prepare(t.Context(), pod, dirs, m.around); err != nil {
			t.Fatal(err)
		}
		m.around.Runs = true
		grown := 0
		for _, c := range m.Calls()[before:] {
			if r, ok := c.(*spec.NodeExpandVolumeRequest); ok && r.GetCapacityRange().GetRequiredBytes() == 2<<30 {
				grown++
			}
		}
		if grown != tt.want {
			t.Errorf("agent %d, with a claim of %s: the driver made it larger %d times, want %d", i, tt.size, grown, tt.want)
		}
	}
}

func TestInlineVolumeOfADriver(t *testing.T) {
	m := newDrivers(t, &csitest.Driver{})
	c := podContext(source(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "test.csi", ReadOnly: ptr(true), VolumeAttributes: map[string]string{"a": "1"},
		NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s"},
	}}))
	c.Pod.UID = "pod-uid"
	dirs := m.pod(t, "pod-uid")
	if _, err := Prepare(t.Context(), c, dirs, m.around); err == nil || !strings.Contains(err.Error(), "makes no volumes for single pods") {
		t.Errorf("without an object: %v", err)
	}
	m.object = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}}
	s, err := Prepare(t.Context(), c, dirs, m.around)
	if err != nil {
		t.Fatal(err)
	}
	r := m.Calls()[0].(*spec.NodePublishVolumeRequest)
	if !r.GetReadonly() || r.GetSecrets()["p"] != "secret" || !strings.HasPrefix(r.GetVolumeId(), "csi-") || s.volumes["v"].own || !s.volumes["v"].readOnly {
		t.Errorf("%v %+v", r, s.volumes["v"])
	}
	m.object = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}}
	other := m.pod(t, "other")
	if _, err := Prepare(t.Context(), c, other, m.around); err == nil || !strings.Contains(err.Error(), "makes no volumes for single pods") {
		t.Error(err)
	}
	m.object.Spec = storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}, TokenRequests: []storagev1.TokenRequest{{}}}
	if _, err := Prepare(t.Context(), c, other, m.around); !errors.Is(err, errdefs.ErrUnimplemented) || !strings.Contains(err.Error(), "tokenRequests") {
		t.Error(err)
	}
}

// TestPersistentVolumeOfAnEphemeralDriver is refused: the driver would not know of it.
func TestPersistentVolumeOfAnEphemeralDriver(t *testing.T) {
	m := newDrivers(t, &csitest.Driver{})
	m.around.Claims = bound(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "test.csi", VolumeHandle: "v"}})
	for _, modes := range [][]storagev1.VolumeLifecycleMode{nil, {storagev1.VolumeLifecycleEphemeral}, {storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}} {
		m.object = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: modes}}
		_, err := Prepare(t.Context(), claimPod(false), m.pod(t, fmt.Sprintf("pod-%d", len(modes))), m.around)
		if refused := err != nil && strings.Contains(err.Error(), "makes volumes for single pods only"); refused != (len(modes) == 1) || !refused && err != nil {
			t.Errorf("modes %q: %v", modes, err)
		}
	}
}

// Drivers get tokens of the pod by their audience, with the times that are in them.
func TestTokensForDrivers(t *testing.T) {
	m := newDrivers(t, &csitest.Driver{})
	c := podContext(source(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "test.csi"}}))
	c.Pod.UID = "pod-uid"
	m.object = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		TokenRequests:        []storagev1.TokenRequest{{Audience: "vault", ExpirationSeconds: ptr[int64](700)}, {}},
	}}
	i := &issuer{text: "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1893456000}`)) + ".x", refreshAt: time.Now().Add(time.Hour)}
	m.around.Tokens = i
	one := `{"token":"` + i.text + `","expirationTimestamp":"2030-01-01T00:00:00Z"}`
	want := `{"":` + one + `,"vault":` + one + `}`
	if _, err := Prepare(t.Context(), c, m.pod(t, "one"), m.around); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(i.asked, []request{{"vault", 700, ""}, {"", 3600, ""}}) {
		t.Errorf("asked for %+v", i.asked)
	}
	r := m.Calls()[0].(*spec.NodePublishVolumeRequest)
	if got := r.GetVolumeContext()[contextTokens]; got != want || r.GetSecrets()[contextTokens] != "" {
		t.Errorf("%s, want %s", got, want)
	}
	m.object.Spec.ServiceAccountTokenInSecrets = ptr(true)
	if _, err := Prepare(t.Context(), c, m.pod(t, "two"), m.around); err != nil {
		t.Fatal(err)
	}
	r = m.Calls()[1].(*spec.NodePublishVolumeRequest)
	if got := r.GetSecrets()[contextTokens]; got != want || r.GetVolumeContext()[contextTokens] != "" {
		t.Errorf("%s, want %s", got, want)
	}
	at := time.Unix(7, 0)
	for _, text := range []string{"opaque", "a.b.c", "a." + base64.RawURLEncoding.EncodeToString([]byte(`{}`)) + ".c"} {
		if got := (token{text, at}).expires(); !got.Equal(at) {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestWhichVolumesTakeAGroup(t *testing.T) {
	policy := func(p storagev1.FSGroupPolicy) *storagev1.FSGroupPolicy { return &p }
	once, many := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	for i, tt := range []struct {
		policy *storagev1.FSGroupPolicy
		v      csi.Volume
		want   bool
	}{
		{nil, csi.Volume{FSType: "ext4", AccessModes: once}, true},
		{nil, csi.Volume{FSType: "ext4", AccessModes: many}, false},
		{nil, csi.Volume{AccessModes: once}, false},
		{nil, csi.Volume{FSType: "ext4", AccessModes: once, ReadOnly: true}, false},
		{policy(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), csi.Volume{FSType: "ext4", AccessModes: once}, true},
		{policy(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), csi.Volume{FSType: "ext4", Inline: true}, true},
		{policy(storagev1.FileFSGroupPolicy), csi.Volume{AccessModes: many}, true},
		{policy(storagev1.NoneFSGroupPolicy), csi.Volume{FSType: "ext4", AccessModes: once}, false},
	} {
		if got := takesGroup(tt.policy, tt.v); got != tt.want {
			t.Errorf("%d: %t", i, got)
		}
	}
}

// A driver or a file system that hangs costs the pod that waits for it, and no
// longer than its context.
func TestWhatHangs(t *testing.T) {
	m := newDrivers(t, &csitest.Driver{Hang: true})
	m.around.Claims = csiClaims()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	dirs := Dirs{Disk: filepath.Join(m.root, "d"), Memory: filepath.Join(m.root, "m"), CSI: filepath.Join(m.root, "c")}
	if _, err := Prepare(ctx, claimPod(false), dirs, m.around); !errors.Is(err, errdefs.ErrDeadline) {
		t.Error(err)
	}
	// A FIFO that nobody writes hangs who opens it, as a dead server does.
	fifo := filepath.Join(m.root, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	ctx, stop := context.WithCancelCause(t.Context())
	go func() {
		<-started
		stop(fmt.Errorf("the pod has waited long enough"))
	}()
	err := look(ctx, fifo, func() error {
		close(started)
		fd, err := unix.Open(fifo, unix.O_RDONLY, 0)
		_ = unix.Close(fd)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "has waited long enough") {
		t.Error(err)
	}
	fd, err := unix.Open(fifo, unix.O_RDWR, 0) // lets the thread end
	if err != nil {
		t.Fatal(err)
	}
	if err := look(t.Context(), fifo, func() error { return nil }); err != nil { // it has
		t.Error(err)
	}
	_ = unix.Close(fd)
}
