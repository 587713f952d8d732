package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/test/apiserver"
)

// TestGrowth goes through the steps of a claim whose volume is to be larger.
func TestGrowth(t *testing.T) {
	claims := apiserver.Resource{Path: "api/v1/persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true}
	server := apiserver.InMemory(t, claims)
	client, err := cluster.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	g := Growth{client}
	read := func() *corev1.PersistentVolumeClaim {
		t.Helper()
		text, err := json.Marshal(server.Get(claims, "default/data"))
		out := &corev1.PersistentVolumeClaim{}
		if err := errors.Join(err, json.Unmarshal(text, out)); err != nil {
			t.Fatal(err)
		}
		return out
	}
	expect := func(what string, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		st := read().Status
		size := st.Capacity[corev1.ResourceStorage]
		got := size.String() + " " + string(st.AllocatedResourceStatuses[corev1.ResourceStorage])
		for _, c := range st.Conditions {
			got += fmt.Sprintf(" %s=%s(%s)", c.Type, c.Status, c.Message)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "u"}}
	pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pvc.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	pvc.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: "True"}, {Type: corev1.PersistentVolumeClaimControllerResizeError, Status: "True"}, {Type: "Others", Status: "True"},
	}
	server.Put(claims, pvc)
	const others = " FileSystemResizePending=True() ControllerResizeError=True() Others=True()"
	begun, err := g.Begins(t.Context(), read())
	expect("begins", err, "1Gi NodeResizeInProgress"+others)
	if begun.ResourceVersion != read().ResourceVersion {
		t.Error("what begins is not the claim as it is now")
	}
	expect("refused", g.Refused(t.Context(), begun, errors.New("not now"), false), "1Gi NodeResizeInProgress"+others+" NodeResizeError=True(the node could not make the volume larger: not now)")
	before := read()
	expect("again", g.Refused(t.Context(), before, errors.New("not now"), false), "1Gi NodeResizeInProgress"+others+" NodeResizeError=True(the node could not make the volume larger: not now)")
	if read().ResourceVersion != before.ResourceVersion {
		t.Error("what it says already was written again")
	}
	expect("never", g.Refused(t.Context(), before, errors.New("too large"), true), "1Gi NodeResizeInfeasible"+others+" NodeResizeError=True(the node could not make the volume larger: too large)")
	if err := g.Done(t.Context(), before, resource.MustParse("2Gi")); err == nil {
		t.Error("a claim that has changed meanwhile was written")
	}
	expect("done", g.Done(t.Context(), read(), resource.MustParse("2Gi")), "2Gi  Others=True()")
}
