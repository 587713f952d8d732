package oci

import (
	"encoding/json"
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestResources(t *testing.T) {
	tests := map[string]struct {
		res  pod.Resources
		v2   bool
		want string
		kind error
	}{
		"nothing":            {res: pod.Resources{}, want: `{}`},
		"score is no cgroup": {res: pod.Resources{OOMScoreAdj: 5}, want: `{}`},
		"cpu": {
			res:  pod.Resources{CPUPeriod: 100000, CPUQuota: -1, CPUShares: 2, CpusetCPUs: "0-1", CpusetMems: "0"},
			want: `{"cpu":{"shares":2,"quota":-1,"period":100000,"cpus":"0-1","mems":"0"}}`,
		},
		"memory":      {res: pod.Resources{MemoryLimit: 1, MemorySwapLimit: -1}, want: `{"memory":{"limit":1,"swap":-1}}`},
		"hugepages":   {res: pod.Resources{HugepageLimits: []pod.HugepageLimit{{PageSize: "2MB", Limit: 4}}}, want: `{"hugepageLimits":[{"pageSize":"2MB","limit":4}]}`},
		"pids on v1":  {res: pod.Resources{Unified: map[string]string{"pids.max": "9"}}, want: `{"pids":{"limit":9}}`},
		"no limit":    {res: pod.Resources{Unified: map[string]string{"pids.max": "max"}}, want: `{"pids":{"limit":-1}}`},
		"bad pids":    {res: pod.Resources{Unified: map[string]string{"pids.max": "x"}}, kind: errdefs.ErrInvalidArgument},
		"other on v1": {res: pod.Resources{Unified: map[string]string{"memory.high": "1"}}, kind: errdefs.ErrUnimplemented},
		"other on v2": {res: pod.Resources{Unified: map[string]string{"memory.high": "1"}}, v2: true, want: `{"unified":{"memory.high":"1"}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := resources(&test.res, test.v2)
			if test.kind != nil {
				if !errors.Is(err, test.kind) {
					t.Errorf("error %v, want %v", err, test.kind)
				}
				return
			}
			data, jsonErr := json.Marshal(got)
			if err != nil || jsonErr != nil || string(data) != test.want {
				t.Errorf("got %s (%v), want %s", data, err, test.want)
			}
		})
	}
}
