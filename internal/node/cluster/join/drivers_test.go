package join

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/plugins/plugintest"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/csi/csitest"
	"fairlead.run/test/apiserver"
	"fairlead.run/test/hostprep"
)

// Drivers mount, and what a test that fails leaves is gone with its namespace.
func TestMain(m *testing.M) { os.Exit(hostprep.Isolated(m.Run)) }

const driverName = "test.csi"

// depot is a site with a CSI driver, and one volume of it.
type depot struct {
	*site
	*csitest.Driver
	plugin *plugintest.Plugin
}

func newDepot(t *testing.T) *depot {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	d := &depot{site: newSite(t), Driver: &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}
	short, err := os.MkdirTemp("", "node") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	d.site.shared = short
	d.plugin = plugintest.New("CSIPlugin", driverName, csitest.Serve(t, d.Driver), "1.0.0")
	d.plugin.Serve(t, filepath.Join(short, "plugins_registry"))
	d.Put(csiDriversOf, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}})
	d.Put(claimsOf, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "claim-uid"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
	d.Put(volumesOf, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{"pv.beta.kubernetes.io/gid": "1234"}},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{UID: "claim-uid"}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "vol", FSType: "ext4", NodeStageSecretRef: &corev1.SecretReference{Namespace: "kube-system", Name: "stage"},
			}},
		},
	})
	d.Put(apiserver.Resource{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true}, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "stage"}, Data: map[string][]byte{"password": []byte("open")},
	})
	return d
}

// claim binds a pod that has the volume.
func (d *depot) claim(name string, change func(*corev1.Pod)) {
	d.bindWith("n", name, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "v", MountPath: "/part", SubPath: "part"}}
		if change != nil {
			change(p)
		}
	})
}

func into[T any](t *testing.T, o apiserver.Object) *T {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (d *depot) node() *corev1.Node { return into[corev1.Node](d.t, d.Get(nodesOf, "n")) }

const volumeName = corev1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^vol")

func (d *depot) inUse() bool {
	return d.Get(nodesOf, "n") != nil && slices.Contains(d.node().Status.VolumesInUse, volumeName)
}

// attach is what controllers do, once the node says that it uses the volume.
func (d *depot) attach() {
	d.t.Helper()
	d.await("the volume in use", d.inUse)
	name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte("vol"+driverName+"n")))
	pv := "pv"
	d.Put(attachmentsOf, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "sdb"}},
	})
	client, err := cluster.NewClient(d.Config())
	if err != nil {
		d.t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status":{"volumesAttached":[{"name":%q,"devicePath":""}]}}`, volumeName)
	err = client.REST(corev1.SchemeGroupVersion).Patch(types.MergePatchType).Resource("nodes").Name("n").SubResource("status").Body([]byte(patch)).Do(d.t.Context()).Error()
	if err != nil {
		d.t.Fatal(err)
	}
}

// names are the calls so far.
func (d *depot) names() string {
	var out []string
	for _, m := range d.Driver.Calls() {
		name := string(m.ProtoReflect().Descriptor().Name())
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(name, "Node"), "VolumeRequest"))
	}
	return strings.Join(out, " ")
}

// mounts are those below the node's folders, by path, with what tells one from another.
func (d *depot) mounts() map[string]int {
	out := map[string]int{}
	for _, dir := range []string{d.dir, d.shared} {
		found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			d.t.Fatal(err)
		}
		for _, m := range found {
			out[m.Mountpoint] = m.ID
		}
	}
	return out
}

func (d *depot) target(name string) string {
	return filepath.Join(d.shared, "pods", string(uidOf(name)), "volumes/kubernetes.io~csi/pv/mount")
}

// clean wants nothing of pods left: no mount, no folder where volumes are staged or pods
// are, no page of the ledger, and no word of the node that it uses the volume.
func (d *depot) clean() {
	d.t.Helper()
	d.await("the end", func() bool { return len(d.fake.Sandboxes()) == 0 && !d.inUse() })
	pages := filepath.Join(d.dir, "lib", "agent", "*")
	d.await("the empty ledger", func() bool { left, _ := filepath.Glob(pages); return len(left) == 0 })
	if left := d.mounts(); len(left) > 0 {
		d.t.Errorf("mounts are left: %v", left)
	}
	for _, pattern := range []string{"pods/*", "plugins/kubernetes.io/csi/*/*"} {
		if left, _ := filepath.Glob(filepath.Join(d.shared, pattern)); len(left) > 0 {
			d.t.Errorf("left: %v", left)
		}
	}
	if got := d.names(); !strings.HasSuffix(got, "Unpublish Unstage") {
		d.t.Errorf("calls %q", got)
	}
}

// TestClaimsAreMeasured tells of the volume of a claim as a kubelet does.
func TestClaimsAreMeasured(t *testing.T) {
	d := newDepot(t)
	n := d.boot()
	d.await("the node", func() bool { return d.Get(nodesOf, "n") != nil })
	d.claim("a", nil)
	d.attach()
	d.await("the pod", func() bool { return d.runs("a", 0) })
	var fs unix.Statfs_t
	if err := unix.Statfs(d.target("a"), &fs); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := n.agent.Metrics(&out); err != nil {
		t.Fatal(err)
	}
	const labels = `{namespace="default",persistentvolumeclaim="data"} `
	for _, want := range []string{
		"capacity_bytes" + labels + strconv.FormatFloat(float64(fs.Blocks)*float64(fs.Bsize), 'g', -1, 64) + "\n", "available_bytes" + labels, "used_bytes" + labels,
		"inodes" + labels + strconv.FormatFloat(float64(fs.Files), 'g', -1, 64) + "\n", "inodes_free" + labels, "inodes_used" + labels,
	} {
		if !strings.Contains(out.String(), "\nkubelet_volume_stats_"+want) {
			t.Errorf("there is no %s in\n%s", want, &out)
		}
	}
	list := slices.Collect(maps.Values(n.volumes(t.Context())))
	if len(list) != 1 || !slices.ContainsFunc(list[0], func(u volume.Usage) bool {
		return u.Claim == "data" && u.Capacity == int64(fs.Blocks)*fs.Bsize && !u.At.IsZero()
	}) {
		t.Errorf("the summary has %+v", list)
	}
	d.Delete(podsOf, "default/a")
	d.clean()
}

// TestDriverRegisters has the cluster hear of a driver, also from the next agent, and of
// its end.
func TestDriverRegisters(t *testing.T) {
	d := newDepot(t)
	has := func() bool {
		o := d.Get(csiNodesOf, "n")
		return o != nil && len(into[storagev1.CSINode](t, o).Spec.Drivers) == 1
	}
	d.boot()
	d.await("the CSINode", has)
	got := into[storagev1.CSINode](t, d.Get(csiNodesOf, "n"))
	one := got.Spec.Drivers[0]
	if one.Name != driverName || one.NodeID != "node-1" || !slices.Equal(one.TopologyKeys, []string{"zone"}) || *one.Allocatable.Count != 7 || got.OwnerReferences[0].UID != d.node().UID {
		t.Errorf("%+v", got)
	}
	node := d.node()
	if node.Labels["zone"] != "a" || node.Annotations["csi.volume.kubernetes.io/nodeid"] != `{"test.csi":"node-1"}` || node.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" {
		t.Errorf("%v %v", node.Labels, node.Annotations)
	}
	if s := <-d.plugin.Told; !s.GetPluginRegistered() {
		t.Error(s)
	}
	d.stop()
	d.Delete(csiNodesOf, "n") // whatever has become of it
	d.boot()
	d.await("the CSINode of the next agent", has)
}

// TestDriverWithAnotherZone is refused: pods would be put where their volumes are not.
func TestDriverWithAnotherZone(t *testing.T) {
	d := newDepot(t)
	d.plugin.Stop()
	d.Put(nodesOf, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "b"}}})
	d.boot()
	d.await("the CSINode", func() bool { return d.Get(csiNodesOf, "n") != nil })
	d.plugin.Serve(t, filepath.Join(d.shared, "plugins_registry"))
	if s := <-d.plugin.Told; !strings.Contains(s.GetError(), `zone of the node is "a", and its label says "b"`) {
		t.Error(s)
	}
}

// TestClaim is the life of two pods that share a volume: it is attached before it is
// mounted, mounted before they start, and theirs until the last one has gone.
func TestClaim(t *testing.T) {
	d := newDepot(t)
	d.boot()
	d.claim("a", nil)
	d.attach()
	d.await("the pod", func() bool { return d.runs("a", 0) })
	d.claim("b", nil)
	d.await("the second pod", func() bool { return d.runs("b", 0) })
	if groups := d.fake.Config("a/c")[0].GetLinux().GetSecurityContext().GetSupplementalGroups(); !slices.Equal(groups, []int64{1234}) {
		t.Errorf("groups %v, want that of the volume", groups)
	}
	mounts := d.fake.Config("a/c")[0].Mounts
	if mounts[0].HostPath != d.target("a") || mounts[0].ContainerPath != "/v" {
		t.Errorf("%v", mounts)
	}
	if err := os.WriteFile(filepath.Join(d.target("a"), "part", "f"), []byte("shared"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(d.target("b"), "part", "f")); string(data) != "shared" {
		t.Errorf("%q %v", data, err)
	}
	if got := d.names(); got != "Stage Publish Publish" {
		t.Errorf("calls %q", got)
	}
	stage, publish := d.Driver.Calls()[0].(*spec.NodeStageVolumeRequest), d.Driver.Calls()[1].(*spec.NodePublishVolumeRequest)
	if stage.GetSecrets()["password"] != "open" || publish.GetPublishContext()["device"] != "sdb" ||
		stage.GetStagingTargetPath() != filepath.Join(d.shared, "plugins/kubernetes.io/csi", driverName, fmt.Sprintf("%x", sha256.Sum256([]byte("vol"))), "globalmount") {
		t.Errorf("%v %v", stage, publish)
	}
	d.Delete(podsOf, "default/a")
	d.await("the end of the first", func() bool { return len(d.fake.Sandboxes()) == 1 && strings.HasSuffix(d.names(), "Unpublish") })
	if !d.inUse() || d.mounts()[d.target("b")] == 0 {
		t.Error("the second pod lost its volume")
	}
	d.Delete(podsOf, "default/b")
	d.clean()
}

// TestClaimWithoutAttachment has a volume that nobody attaches.
func TestClaimWithoutAttachment(t *testing.T) {
	d := newDepot(t)
	d.Put(csiDriversOf, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}})
	d.boot()
	d.claim("a", nil)
	d.await("the pod", func() bool { return d.runs("a", 0) })
	if d.inUse() || d.mounts()[d.target("a")] == 0 {
		t.Errorf("in use %v, calls %q", d.inUse(), d.names())
	}
	d.Delete(podsOf, "default/a")
	d.clean()
}

// TestClaimGrows has the driver grow what is mounted, and the claim say so.
func TestClaimGrows(t *testing.T) {
	d := newDepot(t)
	d.Abilities = append(d.Abilities, spec.NodeServiceCapability_RPC_EXPAND_VOLUME)
	of := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	claim, pv := into[corev1.PersistentVolumeClaim](t, d.Get(claimsOf, "default/data")), into[corev1.PersistentVolume](t, d.Get(volumesOf, "pv"))
	claim.Spec.Resources.Requests, claim.Status.Capacity, pv.Spec.Capacity = of("2Gi"), of("1Gi"), of("2Gi")
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: "True"}, {Type: "Others", Status: "True"}}
	d.Put(claimsOf, claim)
	d.Put(volumesOf, pv)
	d.boot()
	d.claim("a", nil)
	d.attach()
	d.await("the pod", func() bool { return d.runs("a", 0) })
	st := into[corev1.PersistentVolumeClaim](t, d.Get(claimsOf, "default/data")).Status
	if size := st.Capacity[corev1.ResourceStorage]; size.String() != "2Gi" || len(st.Conditions) != 1 || st.Conditions[0].Type != "Others" || len(st.AllocatedResourceStatuses) > 0 || st.Phase != corev1.ClaimBound {
		t.Errorf("%+v", st)
	}
	d.await("an event of the claim", func() bool {
		for _, o := range d.All(eventsOf) {
			if e := into[corev1.Event](t, o); e.Reason == "FileSystemResizeSuccessful" && e.InvolvedObject.Kind == "PersistentVolumeClaim" && e.InvolvedObject.UID == "claim-uid" {
				return true
			}
		}
		return false
	})
	if got := d.names(); got != "Stage Publish Expand" {
		t.Errorf("calls %q", got)
	}
	d.Delete(podsOf, "default/a")
	d.clean()
}

// TestEndedPodGivesItsVolumeBack though its object stays.
func TestEndedPodGivesItsVolumeBack(t *testing.T) {
	d := newDepot(t)
	d.boot()
	d.claim("a", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	d.attach()
	d.await("the pod", func() bool { return d.runs("a", 0) })
	d.fake.Exit("a/c", 0)
	d.await("the end", func() bool { return d.status("a").Phase == corev1.PodSucceeded })
	d.await("the volume that is not in use", func() bool { return !d.inUse() })
	if left := d.mounts(); len(left) > 0 || d.names() != "Stage Publish Unpublish Unstage" {
		t.Errorf("%v, calls %q", left, d.names())
	}
}

// TestKilledWhileMounting ends the agent at each step of a start. The next one goes on.
func TestKilledWhileMounting(t *testing.T) {
	for _, call := range []string{"NodeStageVolume", "NodePublishVolume", "run"} {
		t.Run(call, func(t *testing.T) {
			d := newDepot(t)
			d.boot()
			var reached <-chan struct{}
			if call == "run" { // between the mounts and the start
				d.fake.Hang("run a", nil)
			} else {
				reached = d.StopAt(call)
			}
			d.claim("a", nil)
			d.attach()
			if reached != nil {
				<-reached
			} else {
				d.await("the start", func() bool { return len(d.fake.Calls("run a")) > 0 })
			}
			d.stop()
			if !d.inUse() {
				t.Error("the volume may be detached")
			}
			released := make(chan struct{})
			close(released)
			d.fake.Hang("run a", released)
			d.boot()
			d.await("the pod", func() bool { return d.runs("a", 0) })
			if strings.Contains(d.names(), "Un") || d.mounts()[d.target("a")] == 0 {
				t.Errorf("calls %q", d.names())
			}
			d.Delete(podsOf, "default/a")
			d.clean()
		})
	}
}

// TestKilledWhileUnmounting ends the agent at each step of an end, and has the object of
// the pod go meanwhile. Only the ledger knows of it then.
func TestKilledWhileUnmounting(t *testing.T) {
	for _, call := range []string{"NodeUnpublishVolume", "NodeUnstageVolume"} {
		t.Run(call, func(t *testing.T) {
			d := newDepot(t)
			d.boot()
			d.claim("a", nil)
			d.attach()
			d.await("the pod", func() bool { return d.runs("a", 0) })
			reached := d.StopAt(call)
			d.Delete(podsOf, "default/a")
			<-reached
			d.stop()
			if !d.inUse() {
				t.Error("the volume may be detached")
			}
			d.boot()
			d.clean()
		})
	}
}

// TestKilledUnderPods ends the agent while pods run. Nothing is unmounted, also while the
// driver is away, and the driver is asked again once it is back.
func TestKilledUnderPods(t *testing.T) {
	d := newDepot(t)
	d.boot()
	d.claim("a", nil)
	d.attach()
	d.await("the pod", func() bool { return d.runs("a", 0) })
	before := d.mounts()
	d.stop()
	d.plugin.Stop()
	d.boot()
	d.bind("n", "other")
	d.await("another pod", func() bool { return d.runs("other", 0) })
	d.fake.Exit("a/c", 1)
	d.await("the restart", func() bool { return d.runs("a", 1) })
	after := d.mounts()
	for path, id := range before {
		if !strings.Contains(path, "/subpaths/") && after[path] != id { // those are made for each container
			t.Errorf("%s is another mount", path)
		}
	}
	if !d.inUse() || d.names() != "Stage Publish" {
		t.Errorf("in use %v, calls %q", d.inUse(), d.names())
	}
	d.Delete(podsOf, "default/a")
	d.await("the word of what is missing", func() bool { return d.said("it is not registered on this node") })
	d.stop() // when only the ledger knows what is mounted
	d.boot()
	d.plugin.Serve(t, filepath.Join(d.shared, "plugins_registry"))
	d.Delete(podsOf, "default/other")
	d.clean()
	for path := range before {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// said is that an event has such words.
func (s *site) said(words string) bool {
	for _, o := range s.All(apiserver.Resource{Path: "api/v1/events", Kind: "Event", Namespaced: true}) {
		if text, _ := o["message"].(string); strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// TestDriverThatIsNotThere has its pod wait, with an event, and no other one.
func TestDriverThatIsNotThere(t *testing.T) {
	d := newDepot(t)
	d.plugin.Stop()
	d.boot()
	d.await("the node", func() bool { return d.Get(nodesOf, "n") != nil })
	d.claim("a", nil)
	d.await("the event", func() bool { return d.said("CSI driver test.csi: it is not registered on this node") })
	d.bind("n", "b")
	d.await("another pod", func() bool { return d.runs("b", 0) })
	if d.inUse() || len(d.fake.Calls("run a")) > 0 {
		t.Error("the pod was begun")
	}
	d.plugin.Serve(t, filepath.Join(d.shared, "plugins_registry"))
	d.attach()
	d.await("the pod", func() bool { return d.runs("a", 0) })
	d.Delete(podsOf, "default/a")
	d.Delete(podsOf, "default/b")
	d.clean()
}

// TestReadyAfterCSINode has a new node ready once the cluster knows its CSI drivers, and one that
// was ready before stay so.
func TestReadyAfterCSINode(t *testing.T) {
	s := newSite(t)
	refuse := func(c apiserver.Call) int {
		if c.Resource == "csinodes" && c.Verb != "get" {
			return 403
		}
		return 0
	}
	s.FailWith(refuse)
	ready := func() corev1.NodeCondition {
		if o := s.Get(nodesOf, "n"); o != nil {
			for _, c := range into[corev1.Node](t, o).Status.Conditions {
				if c.Type == corev1.NodeReady {
					return c
				}
			}
		}
		return corev1.NodeCondition{}
	}
	s.boot()
	s.await("the reason", func() bool { return strings.Contains(ready().Message, "failed to initialize CSINode: write CSINode n") })
	if got := ready(); got.Status != corev1.ConditionFalse {
		t.Errorf("%+v", got)
	}
	s.FailWith(nil)
	s.await("a node that is ready", func() bool { return ready().Status == corev1.ConditionTrue })
	if got := into[corev1.Node](t, s.Get(nodesOf, "n")).Status.DeclaredFeatures; len(got) != 3 {
		t.Errorf("declared %q", got)
	}
	s.stop()
	s.FailWith(refuse)
	s.Delete(csiNodesOf, "n")
	before := s.Count(func(c apiserver.Call) bool { return c.Resource == "csinodes" && c.Verb == "create" })
	s.boot()
	s.await("another attempt", func() bool {
		return s.Count(func(c apiserver.Call) bool { return c.Resource == "csinodes" && c.Verb == "create" }) > before
	})
	if got := ready(); got.Status != corev1.ConditionTrue {
		t.Errorf("%+v", got)
	}
}
