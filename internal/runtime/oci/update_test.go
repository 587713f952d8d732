package oci

import (
	"encoding/json"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestLimitsAreTheBundlesWithoutDevices(t *testing.T) {
	limit := int64(7)
	for _, tt := range []struct {
		spec specs.Spec
		want string
	}{
		{specs.Spec{}, `{}`},
		{specs.Spec{Linux: &specs.Linux{}}, `{}`},
		{specs.Spec{Linux: &specs.Linux{Resources: &specs.LinuxResources{
			Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}},
			Memory:  &specs.LinuxMemory{Limit: &limit, Swap: &limit},
		}}}, `{"memory":{"limit":7,"swap":7}}`},
	} {
		got, err := json.Marshal(limits(&tt.spec))
		if err != nil || string(got) != tt.want {
			t.Errorf("got %s (%v), want %s", got, err, tt.want)
		}
	}
}

func TestUpdateSaysThatThereIsNoQuota(t *testing.T) {
	shares, quota := uint64(7), int64(5000)
	for want, c := range map[string]*specs.LinuxCPU{
		`{"quota":-1}`: nil, `{"shares":7,"quota":-1}`: {Shares: &shares}, `{"shares":7,"quota":5000}`: {Shares: &shares, Quota: &quota},
	} {
		got, err := json.Marshal(withQuota(c))
		if err != nil || string(got) != want {
			t.Errorf("got %s (%v), want %s", got, err, want)
		}
	}
}
