package pod

import (
	"errors"
	"math"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestUserNamespaceCheck(t *testing.T) {
	one := []IDMapping{{HostID: 1000, Length: 65536}}
	for name, tc := range map[string]struct {
		u    UserNamespace
		says string // "" means that it is fine
	}{
		"a pod's":             {UserNamespace{UIDs: one, GIDs: one}, ""},
		"the node's":          {UserNamespace{Mode: NamespaceNode}, ""},
		"other groups":        {UserNamespace{UIDs: one, GIDs: []IDMapping{{HostID: 7, Length: 9}}}, ""},
		"up to the last id":   {UserNamespace{UIDs: one, GIDs: []IDMapping{{HostID: math.MaxUint32 - 2, Length: 2}}}, ""},
		"beyond the last id":  {UserNamespace{UIDs: one, GIDs: []IDMapping{{HostID: math.MaxUint32 - 2, Length: 3}}}, "at.gids[0] maps up to id 4294967295"},
		"none":                {UserNamespace{}, "has 0 mappings"},
		"no groups":           {UserNamespace{UIDs: one}, "at.gids has 0"},
		"two":                 {UserNamespace{UIDs: []IDMapping{one[0], one[0]}, GIDs: one}, "at.uids has 2"},
		"no length":           {UserNamespace{UIDs: []IDMapping{{HostID: 1}}, GIDs: one}, "at.uids[0].length"},
		"without root":        {UserNamespace{UIDs: one, GIDs: []IDMapping{{HostID: 1, ContainerID: 1, Length: 9}}}, "at.gids[0].container_id is 1"},
		"the node's and ids":  {UserNamespace{Mode: NamespaceNode, UIDs: one}, "mode is NODE"},
		"a container's":       {UserNamespace{Mode: NamespaceContainer, UIDs: one, GIDs: one}, "at.mode"},
		"another container's": {UserNamespace{Mode: NamespaceTarget, UIDs: one, GIDs: one}, "at.mode"},
	} {
		err := tc.u.Check("at")
		if tc.says == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tc.says != "" && (!errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHostIDs(t *testing.T) {
	c := Config{}
	if u, g := c.Root(); u != 0 || g != 0 {
		t.Errorf("root of a pod without a user namespace is %d:%d", u, g)
	}
	c.Security.Namespaces.User = &UserNamespace{
		UIDs: []IDMapping{{HostID: 1000, Length: 10}}, GIDs: []IDMapping{{HostID: 5000, Length: 20}},
	}
	if u, g := c.Root(); u != 1000 || g != 5000 {
		t.Errorf("root is %d:%d", u, g)
	}
	u := c.UserNamespace()
	for in, want := range map[uint32]uint32{0: 1000, 9: 1009} {
		if id, ok := u.HostUID(in); !ok || id != want {
			t.Errorf("user %d is %d, %t", in, id, ok)
		}
	}
	if id, ok := u.HostUID(10); ok {
		t.Errorf("user 10 is not mapped, and is %d", id)
	}
	if id, ok := u.HostGID(19); !ok || id != 5019 {
		t.Errorf("group 19 is %d, %t", id, ok)
	}
	c.Security.Namespaces.User.Mode = NamespaceNode
	if c.UserNamespace() != nil {
		t.Error("the node's user namespace is not the pod's own")
	}
}
