package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/node/capacity"
)

func TestParseList(t *testing.T) {
	for _, tt := range []struct {
		text, operator string
		want           map[string]string
		err            string
	}{
		{"", "<", map[string]string{}, ""},
		{"memory.available<100Mi,nodefs.available<10%", "<", map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}, ""},
		{" memory.available < 100Mi ", "<", map[string]string{"memory.available": "100Mi"}, ""},
		{"memory.available=1m30s", "=", map[string]string{"memory.available": "1m30s"}, ""},
		{"memory.available=100Mi", "<", nil, `"memory.available=100Mi" is no eviction setting; write it as memory.available<VALUE`},
		{"memory.available<", "<", nil, `"memory.available<" is no eviction setting`},
		{"a<1,", "<", nil, `"" is no eviction setting`},
		{"memory.available<1,memory.available<2", "<", nil, "memory.available is set twice: 1 and 2"},
	} {
		got, err := ParseList(tt.text, tt.operator)
		if !maps.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v, %v", tt.text, got, err)
		}
	}
}

// short writes a threshold: "memory.available<100Mi after 1m and 10Mi more".
func short(t Threshold) string {
	value := func(v Value) string {
		if v.Share > 0 {
			return fmt.Sprintf("%g%%", v.Share*100)
		}
		return v.Amount.String()
	}
	out := string(t.Signal) + "<" + value(t.Value)
	if t.Grace > 0 {
		out += " after " + t.Grace.String()
	}
	if more := value(t.Reclaim); more != "0" {
		out += " and " + more + " more"
	}
	return out
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name     string
		settings Settings
		want     []string
		errs     []string
	}{
		{
			"nothing said",
			Settings{},
			[]string{"memory.available<100Mi", "allocatableMemory.available<100Mi", "nodefs.available<10%", "nodefs.inodesFree<5%", "imagefs.available<15%", "imagefs.inodesFree<5%"},
			nil,
		},
		{"switched off", Settings{Hard: map[string]string{}}, nil, nil},
		{"one switched off", Settings{Hard: map[string]string{"memory.available": "0%", "pid.available": "100%", "nodefs.available": "1Gi"}}, []string{"nodefs.available<1Gi"}, nil},
		{
			"hard, soft and reclaim",
			Settings{
				Hard: map[string]string{"pid.available": "5%", "memory.available": "100Mi"}, Soft: map[string]string{"memory.available": "200Mi"},
				SoftGrace: map[string]string{"memory.available": "1m30s"}, MinimumReclaim: map[string]string{"memory.available": "10Mi"},
			},
			[]string{"memory.available<100Mi and 10Mi more", "memory.available<200Mi after 1m30s and 10Mi more", "allocatableMemory.available<100Mi and 10Mi more", "pid.available<5%"},
			nil,
		},
		{
			"own value for all pods",
			Settings{Hard: map[string]string{"memory.available": "100Mi", "allocatableMemory.available": "1Mi"}},
			[]string{"memory.available<100Mi", "allocatableMemory.available<1Mi"},
			nil,
		},
		{
			"everything wrong",
			Settings{
				Hard:           map[string]string{"memory.free": "1", "memory.available": "lots", "nodefs.available": "110%", "pid.available": "-5", "containerfs.available": "1Gi"},
				Soft:           map[string]string{"memory.available": "1Gi", "nodefs.available": "x%"},
				SoftGrace:      map[string]string{"pid.available": "1m", "nodefs.available": "0s"},
				MinimumReclaim: map[string]string{"memory.available": "NaN%"},
			},
			nil,
			[]string{
				`hard eviction threshold of memory.free: "memory.free" is no eviction signal; use one of memory.available, `,
				`hard eviction threshold of memory.available: "lots" is no quantity; write it as 100Mi or 10%`,
				`hard eviction threshold of nodefs.available: "110%" is no share`,
				"hard eviction threshold of pid.available: -5 is less than nothing",
				"containerfs.available cannot be set, as containers are either on nodefs or on imagefs",
				`soft eviction threshold of nodefs.available: "x%" is no share`,
				"soft eviction threshold memory.available has no grace period; set one",
				"grace period of pid.available is for a soft eviction threshold that is not set",
				"grace period of nodefs.available: 0s is no time; for none set a hard threshold",
				`minimum reclaim of memory.available: "NaN%" is no share`,
			},
		},
	} {
		list, err := tt.settings.Parse()
		var got []string
		for _, th := range list {
			got = append(got, short(th))
		}
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.errs == nil) {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
		for _, want := range tt.errs {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error lacks %q: %v", tt.name, want, err)
			}
		}
	}
}

func TestWithheld(t *testing.T) {
	list, err := Settings{
		Hard: map[string]string{"memory.available": "10%", "nodefs.available": "1Gi", "pid.available": "50%", "imagefs.available": "90%"},
		Soft: map[string]string{"memory.available": "20%"}, SoftGrace: map[string]string{"memory.available": time.Minute.String()},
	}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	got := Withheld(list, capacity.Machine{Memory: 1000, Disk: 100, Pids: 10})
	if got.Memory().Value() != 100 || got.StorageEphemeral().Value() != 1<<30 || len(got) != 3 {
		t.Errorf("withheld %v", got)
	}
	if q := got[capacity.PIDs]; q.Value() != 5 {
		t.Errorf("withheld %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available<100Mi,nodefs.available<10%", "memory.available=1m")
	f.Add("a<1%", "=")
	f.Fuzz(func(t *testing.T, values, graces string) {
		soft, err := ParseList(values, "<")
		if err != nil {
			return
		}
		grace, err := ParseList(graces, "=")
		if err != nil {
			return
		}
		list, err := Settings{Soft: soft, SoftGrace: grace}.Parse()
		if err != nil {
			return
		}
		for _, th := range list {
			if v := th.Value.Of(1000); v < 0 {
				t.Errorf("%s is %d of 1000", short(th), v)
			}
		}
	})
}
