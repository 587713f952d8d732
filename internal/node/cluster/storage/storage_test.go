package storage

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/test/apiserver"
)

var attachments = apiserver.Resource{Path: "apis/storage.k8s.io/v1/volumeattachments", Kind: "VolumeAttachment"}

func newStorage(t *testing.T) (*Storage, *apiserver.Server) {
	server := apiserver.InMemory(t, attachments)
	client, err := cluster.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return New(client, "n", func(error) {}, slog.New(slog.DiscardHandler)), server
}

func node(labels, annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: labels, Annotations: annotations}}
}

// TestDriversThatGo stay for a while: those of an earlier agent for longer.
func TestDriversThatGo(t *testing.T) {
	s, _ := newStorage(t)
	began := time.Now()
	s.Set("a", &csi.NodeInfo{ID: "1"})
	s.Set("b", &csi.NodeInfo{ID: "1"})
	if st := s.drivers.state(began); len(st.here) != 2 || !st.stays("old") || !st.next.Equal(began.Add(settled)) {
		t.Errorf("%+v", st)
	}
	s.Set("b", nil)
	for after, want := range map[time.Duration]string{
		0: "b old", lapse + time.Second: "old", settled: "",
	} {
		st := s.drivers.state(began.Add(after))
		var stay []string
		for _, name := range []string{"b", "old"} {
			if st.stays(name) {
				stay = append(stay, name)
			}
		}
		if got := strings.Join(stay, " "); got != want || len(st.here) != 1 {
			t.Errorf("after %s: %q stay, want %q", after, got, want)
		}
		if st.next.IsZero() != (after == settled) {
			t.Errorf("after %s: looks again at %s", after, st.next)
		}
	}
	s.Set("b", &csi.NodeInfo{ID: "2"})
	if st := s.drivers.state(began.Add(settled)); st.here["b"].ID != "2" {
		t.Errorf("%+v", st.here)
	}
}

func all(string) bool  { return true }
func none(string) bool { return false }

// here are drivers that say all the same.
func here(names ...string) map[string]csi.NodeInfo {
	out := map[string]csi.NodeInfo{}
	for _, name := range names {
		out[name] = csi.NodeInfo{ID: "id-" + name, Topology: map[string]string{"zone": "a"}, MaxVolumes: 7}
	}
	return out
}

func TestNodePatch(t *testing.T) {
	for _, tt := range []struct {
		name string
		node *corev1.Node
		st   state
		want string // without the uid; empty for none
	}{
		{"a first driver", node(nil, nil), state{here: here("a"), stays: none}, `{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"a\":\"id-a\"}"},"labels":{"zone":"a"}}`},
		{"nothing new", node(map[string]string{"zone": "a"}, map[string]string{AnnotationNodeID: `{"a":"id-a"}`}), state{here: here("a"), stays: none}, ""},
		{"another label stays", node(map[string]string{"zone": "b"}, map[string]string{AnnotationNodeID: `{"a":"id-a"}`}), state{here: here("a"), stays: none}, ""},
		{"one that stays", node(nil, map[string]string{AnnotationNodeID: `{"old":"1"}`}), state{stays: all}, ""},
		{"one that goes", node(nil, map[string]string{AnnotationNodeID: `{"old":"1"}`}), state{stays: none}, `{"annotations":{"csi.volume.kubernetes.io/nodeid":null}}`},
		{"no JSON", node(nil, map[string]string{AnnotationNodeID: `x`}), state{stays: all}, `{"annotations":{"csi.volume.kubernetes.io/nodeid":null}}`},
		{"none", node(nil, nil), state{stays: all}, ""},
	} {
		patch, err := nodePatch(tt.node, tt.st)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if patch != nil {
			var of struct{ Metadata map[string]any }
			if err := json.Unmarshal(patch, &of); err != nil || of.Metadata["uid"] != "u" {
				t.Errorf("%s: %s %v", tt.name, patch, err)
			}
			delete(of.Metadata, "uid")
			text, err := json.Marshal(of.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestDriversThatDisagree with a label are not told of.
func TestDriversThatDisagree(t *testing.T) {
	s, _ := newStorage(t)
	if err := s.Check("a", csi.NodeInfo{Topology: map[string]string{"zone": "a"}}); err != nil {
		t.Error(err) // nobody knows yet
	}
	st := state{here: here("a", "b")}
	st.here["b"] = csi.NodeInfo{ID: "1", Topology: map[string]string{"rack": "7"}}
	err := st.drop(node(map[string]string{"zone": "b"}, nil))
	if len(st.here) != 1 || !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "CSI driver a says that zone") {
		t.Errorf("%v %v", st.here, err)
	}
}

// TestNotTold says once why the cluster cannot be told of the drivers.
func TestNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := cluster.NewClient(apiserver.InMemory(t, attachments).Config()) // which has no CSINodes
		if err != nil {
			t.Fatal(err)
		}
		var warned []string
		s := New(client, "n", func(err error) { warned = append(warned, err.Error()) }, slog.New(slog.DiscardHandler))
		s.See(node(nil, nil))
		s.Set("a", &csi.NodeInfo{ID: "1"})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(warned) != 1 || !strings.Contains(warned[0], "volumes may not be attached") {
			t.Errorf("told %q, want it once", warned)
		}
	})
}

func TestCSINode(t *testing.T) {
	has := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "5", Labels: map[string]string{"others": "stay"}},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "old", NodeID: "1"}, {Name: "b", NodeID: "other"}}},
	}
	got := csiNode(node(nil, nil), has, state{here: here("b", "a"), stays: all})
	var names []string
	for _, d := range got.Spec.Drivers {
		names = append(names, d.Name+"="+d.NodeID)
	}
	if !slices.Equal(names, []string{"a=id-a", "b=id-b", "old=1"}) || got.ResourceVersion != "5" || got.Labels["others"] != "stay" || got.OwnerReferences[0].UID != "u" {
		t.Errorf("%+v", got)
	}
	if d := got.Spec.Drivers[0]; *d.Allocatable.Count != 7 || !slices.Equal(d.TopologyKeys, []string{"zone"}) {
		t.Errorf("%+v", d)
	}
	if got = csiNode(node(nil, nil), nil, state{here: map[string]csi.NodeInfo{"a": {ID: "1", MaxVolumes: 1 << 40}, "b": {ID: "1"}}, stays: none}); *got.Spec.Drivers[0].Allocatable.Count != 1<<31-1 || got.Spec.Drivers[1].Allocatable != nil {
		t.Errorf("%+v", got.Spec.Drivers)
	}
	if got = csiNode(node(nil, nil), has, state{stays: none}); got.Spec.Drivers == nil || len(got.Spec.Drivers) > 0 {
		t.Errorf("%+v", got.Spec.Drivers)
	}
}

// TestAttached needs both words of the node in one version, and tells what is missing.
func TestAttached(t *testing.T) {
	id := csi.ID{Driver: "d", Handle: "h"}
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}}
	attachment := func(st storagev1.VolumeAttachmentStatus) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: attachmentName(id, "n")}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n"}, Status: st,
		}
	}
	used, attached := node(nil, nil), node(nil, nil)
	used.Status.VolumesInUse = []corev1.UniqueVolumeName{UniqueName(id)}
	attached.Status.VolumesAttached = []corev1.AttachedVolume{{Name: UniqueName(id)}}
	both := used.DeepCopy()
	both.Status.VolumesAttached = attached.Status.VolumesAttached
	failed, done := attachment(storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no slot"}}), attachment(storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "sdb"}})
	for _, tt := range []struct {
		name string
		node *corev1.Node
		a    *storagev1.VolumeAttachment
		want string // words of the error; empty for none
	}{
		{"no node", nil, done, "its node does not say yet that it uses it"},
		{"attached, and may be detached", attached, done, "its node does not say yet that it uses it"},
		{"nobody attaches", used, nil, "nobody has begun to attach it"},
		{"it fails", used, failed, "says: no slot"},
		{"not told", used, done, "the node's status does not say so yet"},
		{"there", both, done, ""},
		{"another attachment", both, failed, "says: no slot"},
		{"none any more", both, nil, "get VolumeAttachment csi-"},
	} {
		s, server := newStorage(t)
		if tt.node != nil {
			s.See(tt.node)
		}
		if tt.a != nil {
			server.Put(attachments, tt.a)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var got map[string]string
		var err error
		go func() {
			defer close(ended)
			got, err = s.Attached(ctx, pv)
		}()
		if tt.want != "" {
			asked(s, server, tt.node)
			cancel()
		}
		<-ended
		cancel()
		if tt.want == "" && (err != nil || got["device"] != "sdb") {
			t.Errorf("%s: %v %v", tt.name, got, err)
		}
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	// It goes on as soon as the node says both.
	s, server := newStorage(t)
	server.Put(attachments, done)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Attached(t.Context(), pv)
		ended <- err
	}()
	for _, n := range []*corev1.Node{used, attached, both} {
		s.See(n)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// asked waits until what is known was asked for twice: then it counts once, at least.
func asked(s *Storage, server *apiserver.Server, n *corev1.Node) {
	if n == nil || len(n.Status.VolumesInUse) == 0 {
		return // there is nothing to ask for
	}
	for {
		asked := server.Count(func(c apiserver.Call) bool { return c.Resource == "volumeattachments" })
		if asked > 1 {
			return
		}
		if asked > 0 {
			s.See(n)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestUnknownDrivers are not taken for drivers without an object.
func TestUnknownDrivers(t *testing.T) {
	s, _ := newStorage(t)
	if _, err := s.Driver("d"); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
}
