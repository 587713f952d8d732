package removal

import "testing"

func TestUID(t *testing.T) {
	for uid, want := range map[string]bool{
		"0d6f7a0c-2c2f-4a8e-9d0a-1b2c3d4e5f60": true, "": false, "../../../../../../../../../../../../x": false, "0d6f7a0c-2c2f-4a8e-9d0a-1b2c3d4e5f6/": false,
	} {
		if IsUID(uid) != want {
			t.Errorf("%q: %v", uid, !want)
		}
	}
}
