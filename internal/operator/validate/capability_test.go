package validate

import (
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/operator/plugins"
)

// able is a profile whose machine types state what they can, as a garden cluster has it.
const able = `{"spec":{"machineCapabilities":[{"name":"architecture","values":["amd64","arm64"]},{"name":"nestedVirtualization","values":["supported","unsupported"]},{"name":"machineHostType","values":["virtual","metal"]}],
"machineTypes":[
 {"name":"m5.large","architecture":"amd64","capabilities":{"architecture":["amd64"],"nestedVirtualization":["unsupported"],"machineHostType":["virtual"]}},
 {"name":"m6.large","architecture":"amd64","capabilities":{"architecture":["amd64"],"nestedVirtualization":["supported"],"machineHostType":["virtual"]}},
 {"name":"m6.both","architecture":"amd64","capabilities":{"nestedVirtualization":["unsupported","supported"]}},
 {"name":"m6.old","architecture":"amd64","usable":false,"capabilities":{"nestedVirtualization":["supported"]}},
 {"name":"m6g.large","architecture":"arm64","capabilities":{"nestedVirtualization":["supported"]}},
 {"name":"m7.large","architecture":"amd64","capabilities":{"architecture":["amd64"]}},
 {"name":"m7.metal","architecture":"amd64","capabilities":{"architecture":["amd64"],"nestedVirtualization":["unsupported"],"machineHostType":["metal"]}},
 {"name":"silent.small"}]}}`

func profiled(t *testing.T, text string) *CloudProfile {
	t.Helper()
	p, err := ReadProfile(byProfile, []byte(text), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// onMachine is a shoot of AWS's with one group of a machine type.
func onMachine(machine string, types ...string) *Shoot {
	s := onImage("ubuntu", "22.9.2", "", types...)
	s.Spec.Kubernetes.Version, s.Spec.Provider.Type = "1.33.1", "aws"
	s.Spec.Provider.Workers[0].Machine.Type = machine
	return s
}

func capability(t *testing.T, text string) Capability {
	t.Helper()
	c, err := ParseCapability(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCapabilityGoesBeforeNames(t *testing.T) {
	p := profiled(t, able)
	arm := onMachine("m5.large", "kata-containers")
	arm.Spec.Provider.Workers[0].Machine.Architecture = "arm64"
	for name, c := range map[string]struct {
		shoot      *Shoot
		profile    *CloudProfile
		capability string
		fault      string // "" is none
	}{
		"it can":                        {shoot: onMachine("m6.large", "kata-containers"), profile: p, capability: DefaultCapability},
		"it can, by an alias":           {shoot: onMachine("m6.large", "kata"), profile: p, capability: DefaultCapability},
		"some of it can":                {shoot: onMachine("m6.both", "kata"), profile: p, capability: DefaultCapability},
		"it cannot":                     {shoot: onMachine("m5.large", "kata"), profile: p, capability: DefaultCapability, fault: `spec.provider.workers[0].machine.type: Invalid value: "m5.large": CloudProfile aws gives it the capability nestedVirtualization: unsupported, and not supported, and kata-containers needs machines that can run virtual machines; choose one that has it: m6.large, m6.both, or take kata-containers off this pool`},
		"the name says that it can":     {shoot: onMachine("m7.metal", "kata"), profile: p, capability: DefaultCapability, fault: "and not supported"},
		"of another architecture":       {shoot: arm, profile: p, capability: DefaultCapability, fault: "choose one that has it: m6g.large, or"},
		"it does not say":               {shoot: onMachine("m7.large", "kata"), profile: p, capability: DefaultCapability, fault: "machines of type m7.large cannot run virtual machines"},
		"nothing is said of it":         {shoot: onMachine("m9.large", "kata"), profile: p, capability: DefaultCapability, fault: "machines of type m9.large cannot run virtual machines"},
		"by another name it can":        {shoot: onMachine("m7.metal", "kata"), profile: p, capability: "machineHostType=metal"},
		"by another name it cannot":     {shoot: onMachine("m6.large", "kata"), profile: p, capability: "machineHostType=metal", fault: "gives it the capability machineHostType: virtual, and not metal"},
		"by no name":                    {shoot: onMachine("m6.large", "kata"), profile: p, fault: "machines of type m6.large cannot run virtual machines"},
		"without a profile":             {shoot: onMachine("m6.large", "kata"), capability: DefaultCapability, fault: "machines of type m6.large cannot run virtual machines"},
		"nobody has that value":         {shoot: onMachine("m6.large", "kata"), profile: p, capability: "nestedVirtualization=yes", fault: "no machine type there states that it has it; have who runs the landscape correct spec.machineTypes[].capabilities, or take"},
		"a runtime that does not mind":  {shoot: onMachine("m5.large", "gvisor"), profile: p, capability: DefaultCapability},
		"a runtime that nobody here is": {shoot: onMachine("m5.large", "wasm"), profile: p, capability: DefaultCapability},
	} {
		t.Run(name, func(t *testing.T) {
			k := Known{Plugins: plugins.All(), Profile: c.profile, Capability: capability(t, c.capability)}
			r := k.Shoot(c.shoot)
			if (len(r.Faults) == 1) != (c.fault != "") || len(r.Faults) > 0 && !strings.Contains(r.Faults[0].Error(), c.fault) {
				t.Errorf("%v", r.Faults)
			}
			if len(r.Faults) > 0 && !OfMachine(r.Faults[0]) {
				t.Errorf("not about a machine: %v", r.Faults[0])
			}
			if len(r.Warnings) > 0 {
				t.Errorf("%q", r.Warnings)
			}
		})
	}
}

// A profile that says another thing than before does not hold up what is there.
func TestCapabilityOfWhatIsThere(t *testing.T) {
	k := Known{Plugins: plugins.All(), Profile: profiled(t, able), Capability: capability(t, DefaultCapability)}
	there, newer := onMachine("m5.large", "kata"), onMachine("m5.large", "kata")
	newer.Spec.Kubernetes.Version = "1.34.0"
	if r := k.ShootUpdate(newer, there); len(r.Faults) > 0 {
		t.Errorf("it is held up: %v", r.Faults)
	}
	if newer.AsksProfile(there) {
		t.Error("a profile is asked about what does not change")
	}
	moved := onMachine("m5.large", "kata")
	if !moved.AsksProfile(onMachine("m6.large", "kata")) {
		t.Error("no profile is asked about another machine type")
	}
	expect(t, k.ShootUpdate(moved, onMachine("m6.large", "kata")).Faults, "spec.provider.workers[0].machine.type and not supported")
	// The old profile is not known: what was right there may be wrong here.
	other := onMachine("m5.large", "kata")
	other.Spec.CloudProfile.Name = "other"
	expect(t, k.ShootUpdate(onMachine("m5.large", "kata"), other).Faults, "spec.provider.workers[0].machine.type and not supported")
	// Where the new one says nothing of the machine either, it is the fault of before, whatever
	// else is to be had now.
	there, other = onMachine("m9.large", "kata"), onMachine("m9.large", "kata")
	other.Spec.CloudProfile.Name = "other"
	if r := k.ShootUpdate(there, other); len(r.Faults) > 0 {
		t.Errorf("another profile brings it to light: %v", r.Faults)
	}
	// Images are of no interest to who has none, and to who only changes the machine.
	bare := onMachine("m6.large", "kata")
	bare.Spec.Provider.Workers[0].Machine.Image = nil
	for name, old := range map[string]*Shoot{"a new one": nil, "another machine": onMachine("m5.large", "kata")} {
		now := bare
		if old != nil {
			now = onMachine("m6.large", "kata")
		}
		if r := ShootOnProfile(now, old, byProfile, profiled(t, landscape)); !now.AsksProfile(old) || len(r.Faults)+len(r.Warnings) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestParseCapability(t *testing.T) {
	for text, want := range map[string]Capability{"": {}, DefaultCapability: {"nestedVirtualization", "supported"}, "machineHostType=metal": {"machineHostType", "metal"}} {
		if got, err := ParseCapability(text); err != nil || got != want {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"a", "a=", "=b", "a=b=c", "a =b", " "} {
		if got, err := ParseCapability(text); err == nil || !strings.Contains(err.Error(), "NAME=VALUE") {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
}
