package errtext

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestStable leaves out what is another at each attempt, and nothing that people need.
func TestStable(t *testing.T) {
	a, b := strings.Repeat("0a1b2c3d", 8), strings.Repeat("9f8e7d6c", 8)
	for _, tt := range []struct{ first, second, want string }{
		{
			`create container default/p/x: at stage "mount the \"root\"" after 12ms: mount /run/fairlead/containers/` + a + `/rootfs: no space left on device`,
			`create container default/p/x: at stage "mount the \"root\"" after 1m0.5s: mount /run/fairlead/containers/` + b + `/rootfs: no space left on device`,
			`create container default/p/x: at stage "mount the \"root\"": mount /run/fairlead/containers/<id>/rootfs: no space left on device`,
		},
		{
			"start container " + a[:13] + `: exec: "no": executable file not found in $PATH`,
			"start container " + b[:13] + `: exec: "no": executable file not found in $PATH`,
			`start container <id>: exec: "no": executable file not found in $PATH`,
		},
		{
			`run pod default/p: still at stage "attach" after 900µs; it goes on, ask again for its result`,
			`run pod default/p: still at stage "attach" after 2s; it goes on, ask again for its result`,
			`run pod default/p: still at stage "attach"; it goes on, ask again for its result`,
		},
		{
			`a request with the same name asked for it differently, has been at work for 3ms and is at stage "begin"`,
			`a request with the same name asked for it differently, has been at work for 30ms and is at stage "begin"`,
			`a request with the same name asked for it differently, is at stage "begin"`,
		},
		{
			`failed to setup network for sandbox "` + a + `": plugin type="bridge" failed (add): failed to open netns "/var/run/netns/cni-0d6f7a0c-2c2f-4a8e-9d0a-000000000001": no such file; veth0a1b2c3d is there`,
			`failed to setup network for sandbox "` + b + `": plugin type="bridge" failed (add): failed to open netns "/var/run/netns/cni-1d6f7a0c-2c2f-4a8e-9d0a-000000000002": no such file; veth9f8e7d6c is there`,
			`failed to setup network for sandbox "<id>": plugin type="bridge" failed (add): failed to open netns "/var/run/netns/<id>": no such file; veth<id> is there`,
		},
		{
			"lookup r.example on 192.0.2.1:53: read udp 192.0.2.7:41234->192.0.2.1:53: i/o timeout; open /proc/4711/ns/net: gone",
			"lookup r.example on 192.0.2.1:53: read udp 192.0.2.7:998->192.0.2.1:53: i/o timeout; open /proc/12/ns/net: gone",
			"lookup r.example on 192.0.2.1:53: read udp 192.0.2.7->192.0.2.1:53: i/o timeout; open /proc/<pid>/ns/net: gone",
		},
		{
			"openat ..2026_11_28_03_50_53.1234/token: no space left on device; write /var/lib/fairlead/content/incoming/77: no space left on device",
			"openat ..2026_11_28_03_50_54.567/token: no space left on device; write /var/lib/fairlead/content/incoming/8: no space left on device",
			"openat ..<time>/token: no space left on device; write /var/lib/fairlead/content/incoming/<id>: no space left on device",
		},
	} {
		if got := Stable(tt.first); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		if got := Stable(tt.second); got != tt.want {
			t.Errorf("the second time it is %q, want %q", got, tt.want)
		}
	}
	for _, same := range []string{
		"the runtime did not answer within 2m0s",
		"image r.example/i@sha256:" + a + ": blob sha256:" + b + " is not there",
		"open /var/lib/fairlead/content/blobs/sha256/" + a + ": no space left on device",
		"mount /var/lib/kubelet/pods/0d6f7a0c-2c2f-4a8e-9d0a-000000000001/volumes/v: permission denied",
		"hostPath /data/0a1b2c3d4e5f6 is not a folder",
		"pod default/p, container x: dial 192.0.2.1:443: refused",
	} {
		if got := Stable(same); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
}

func TestOf(t *testing.T) {
	id := strings.Repeat("0a1b2c3d", 8)
	for _, err := range []error{status.Error(codes.Internal, "container "+id+" is gone"), errors.New("container " + id + " is gone")} {
		if got := Of(err); got != "container <id> is gone" {
			t.Errorf("%q", got)
		}
		if got := Full(err); got != "container "+id+" is gone" {
			t.Errorf("%q", got)
		}
	}
	if got := Of(fmt.Errorf("start x: %w", errors.New("no"))); got != "start x: no" {
		t.Errorf("%q", got)
	}
}
