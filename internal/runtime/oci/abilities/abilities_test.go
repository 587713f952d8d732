package abilities

import (
	"encoding/json"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"fairlead.run/internal/pod"
)

func TestAbilities(t *testing.T) {
	all := Host{appArmor: true, seLinux: true}
	var f features.Features
	err := json.Unmarshal([]byte(`{"mountOptions":["ro","rro"],"linux":{"namespaces":["user"],
		"seccomp":{"enabled":true},"apparmor":{"enabled":true},"selinux":{"enabled":false},
		"mountExtensions":{"idmap":{"enabled":true}}}}`), &f)
	if err != nil {
		t.Fatal(err)
	}
	runc := Runtime{Name: "runc", Number: "1.2.0"}
	want := pod.HandlerFeatures{AppArmor: true}
	if got := runc.Can(&f, all); got != want {
		t.Errorf("runc: %+v", got)
	}
	if got := runc.Can(&f, Host{}); got != (pod.HandlerFeatures{}) {
		t.Errorf("on a kernel that can do nothing: %+v", got)
	}
	if got := runc.Can(&features.Features{}, all); got != (pod.HandlerFeatures{}) {
		t.Errorf("with empty features: %+v", got)
	}
	crun := Runtime{Name: "crun", Number: "1.8.1", Flags: "+SELINUX +SECCOMP"}
	want = pod.HandlerFeatures{SELinux: true}
	if got := crun.Can(nil, all); got != want {
		t.Errorf("crun without features: %+v", got)
	}
}
