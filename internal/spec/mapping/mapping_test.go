package mapping

import (
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func ids(host, length uint32) []pod.IDMapping { return []pod.IDMapping{{HostID: host, Length: length}} }

func user(host, length uint32) *pod.UserNamespace {
	return &pod.UserNamespace{UIDs: ids(host, length), GIDs: ids(host, length)}
}

func TestSame(t *testing.T) {
	node := &pod.UserNamespace{Mode: pod.NamespaceNode}
	for name, tc := range map[string]struct {
		own, pods *pod.UserNamespace
		want      error
	}{
		"neither":            {nil, nil, nil},
		"the pod's alone":    {nil, user(1, 9), nil},
		"both the same":      {user(1, 9), user(1, 9), nil},
		"the node's":         {node, nil, nil},
		"other ids":          {user(2, 9), user(1, 9), errdefs.ErrInvalidArgument},
		"other groups":       {&pod.UserNamespace{UIDs: ids(1, 9), GIDs: ids(2, 9)}, user(1, 9), errdefs.ErrInvalidArgument},
		"the container's":    {user(1, 9), nil, errdefs.ErrInvalidArgument},
		"the node's instead": {node, user(1, 9), errdefs.ErrInvalidArgument},
		"broken":             {&pod.UserNamespace{}, user(1, 9), errdefs.ErrInvalidArgument},
	} {
		if err := Same(tc.own, tc.pods); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestMount(t *testing.T) {
	for name, tc := range map[string]struct {
		m    pod.Mount
		pods *pod.UserNamespace
		want error
	}{
		"none":            {pod.Mount{}, user(1, 9), nil},
		"the pod's":       {pod.Mount{UIDMappings: ids(1, 9), GIDMappings: ids(1, 9)}, user(1, 9), nil},
		"users alone":     {pod.Mount{UIDMappings: ids(1, 9)}, user(1, 9), errdefs.ErrUnimplemented},
		"others":          {pod.Mount{UIDMappings: ids(2, 9), GIDMappings: ids(1, 9)}, user(1, 9), errdefs.ErrUnimplemented},
		"without a pod's": {pod.Mount{GIDMappings: ids(1, 9)}, nil, errdefs.ErrInvalidArgument},
	} {
		if err := Mount("mounts[0]", tc.m, tc.pods); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		uid    uint32
		groups []uint32
		pods   *pod.UserNamespace
		want   error
	}{
		"no namespace":   {70000, []uint32{70000}, nil, nil},
		"in it":          {8, []uint32{0, 8}, user(1, 9), nil},
		"user beyond":    {9, nil, user(1, 9), errdefs.ErrInvalidArgument},
		"a group beyond": {0, []uint32{0, 9}, user(1, 9), errdefs.ErrInvalidArgument},
	} {
		if err := Process(tc.uid, tc.groups, tc.pods); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestTTYGroup(t *testing.T) {
	for want, pods := range map[string]*pod.UserNamespace{"5": user(1, 6), "0": user(1, 5)} {
		if got := TTYGroup(pods); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := TTYGroup(nil); got != "5" {
		t.Errorf("without a user namespace: %s", got)
	}
}
