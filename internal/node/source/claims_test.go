package source

import "testing"

func TestClaims(t *testing.T) {
	o := objects(t, "a.yaml", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: space}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n")
	c := NewClaims(o, "/root/claims")
	claim := c.Claim("space", "data")
	if claim == nil || claim.Status.Phase != "Bound" || claim.UID == "" {
		t.Fatalf("%+v", claim)
	}
	v := c.Volume(claim.Spec.VolumeName)
	if v == nil || v.Spec.HostPath.Path != "/root/claims/space/data" || *v.Spec.HostPath.Type != "DirectoryOrCreate" || v.Spec.ClaimRef.UID != claim.UID ||
		v.Spec.PersistentVolumeReclaimPolicy != "Retain" {
		t.Fatalf("%+v", v)
	}
	if c.Claim("default", "data") != nil || c.Volume("claim-0") != nil {
		t.Error("what is not there is found")
	}
	for key := range o.Claims {
		if o.Claims[key].Spec.VolumeName != "" {
			t.Error("the claim of the set was changed")
		}
	}
}
