package hostprep

import (
	"os"
	"slices"
	"testing"
)

// TestTwoUsersAtOnce fails if one user's release takes the mounts from another,
// or if the last one leaves something behind.
func TestTwoUsersAtOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount cgroup hierarchies")
	}
	before, err := controllers()
	if err != nil {
		t.Fatal(err)
	}
	if len(before) == 0 {
		t.Skip("this host's cgroups suit crun, or are being prepared by somebody else")
	}
	first, err := Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	second, err := Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := first(); err != nil {
		t.Error(err)
	}
	if left, err := controllers(); err != nil || len(left) > 0 {
		t.Errorf("with one user left, unified/ has %v (%v)", left, err)
	}
	// A cgroup that a killed container has left must not keep the hierarchy.
	if err := os.Mkdir(root+"/"+before[0]+"/fairlead-hostprep-test", 0o755); err != nil {
		t.Error(err)
	}
	if err := second(); err != nil {
		t.Error(err)
	}
	ours, err := mounts()
	if err != nil {
		t.Fatal(err)
	}
	after, err := controllers()
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) == 0 && !slices.Equal(before, after) {
		t.Errorf("unified/ had %v and has %v", before, after)
	}
}
