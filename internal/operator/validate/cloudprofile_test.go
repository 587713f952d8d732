package validate

import (
	"strings"
	"testing"
	"time"

	"fairlead.run/api/v1alpha1"
)

// landscape is a profile as a garden cluster has it.
const landscape = `{"spec":{"machineImages":[
 {"name":"ubuntu","versions":[
  {"version":"18.4.9","cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"}]}],"expirationDate":"2020-01-01T00:00:00Z"},
  {"version":"22.4.1","architectures":["amd64","arm64"]},
  {"version":"22.10.2","architectures":["amd64"],"cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"}]}]},
  {"version":"22.9.2","architectures":["amd64"],"cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"}]}]},
  {"version":"24.4.0","architectures":["arm64"],"cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"}]}]}]},
 {"name":"suse-chost","versions":[{"version":"15.6.1","architectures":["amd64"],"cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"},{"type":"kata-containers"}]}]}]},
 {"name":"docker-only","versions":[{"version":"1.0.0","cri":[{"name":"docker"}]}]}]}}`

var byProfile = ProfileRef{Kind: KindCloudProfile, Name: "aws"}

// onImage is a shoot with one group on an image.
func onImage(image, imageVersion, arch string, types ...string) *Shoot {
	s := &Shoot{}
	s.Spec.CloudProfile = &ShootProfile{Name: "aws"}
	w := Worker{Name: "w"}
	w.Machine.Architecture = arch
	w.Machine.Image = &struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}{image, imageVersion}
	w.CRI = &struct {
		Name              v1alpha1.CRIName       `json:"name"`
		ContainerRuntimes []v1alpha1.PoolRuntime `json:"containerRuntimes"`
	}{Name: v1alpha1.CRIContainerd}
	for _, t := range types {
		w.CRI.ContainerRuntimes = append(w.CRI.ContainerRuntimes, v1alpha1.PoolRuntime{Type: t})
	}
	s.Spec.Provider.Workers = []Worker{w}
	return s
}

func TestShootOnProfile(t *testing.T) {
	p, err := ReadProfile(byProfile, []byte(landscape), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	const first = `spec.provider.workers[0].cri.containerRuntimes[0].type: Invalid value: "gvisor": `
	ending := "2026-01-01T00:00:00Z"
	for name, c := range map[string]struct {
		now, old *Shoot
		profile  *CloudProfile
		faults   []string
		warning  string
	}{
		"taken":                  {now: onImage("ubuntu", "22.9.2", "", "gvisor"), profile: p},
		"on another machine":     {now: onImage("ubuntu", "24.4.0", "arm64", "gvisor"), profile: p},
		"not of this version":    {now: onImage("ubuntu", "22.4.1", "", "gvisor"), profile: p, faults: []string{first + "CloudProfile aws does not have it below containerd for machine image ubuntu 22.4.1; set machine.image.version to one that has all of it: 22.10.2, 22.9.2"}},
		"nor for these machines": {now: onImage("ubuntu", "22.4.1", "arm64", "gvisor"), profile: p, faults: []string{first + "CloudProfile aws does not have it below containerd for machine image ubuntu 22.4.1; set machine.image.version to one that has all of it: 24.4.0"}},
		"of another image":       {now: onImage("ubuntu", "22.9.2", "amd64", "kata-containers"), profile: p, faults: []string{"no version of ubuntu has all of it; set machine.image to one that has: suse-chost 15.6.1"}},
		"one of two":             {now: onImage("ubuntu", "22.9.2", "amd64", "gvisor", "kata-containers"), profile: p, faults: []string{`containerRuntimes[1].type: Invalid value: "kata-containers"`}},
		"of none":                {now: onImage("ubuntu", "22.9.2", "amd64", "wasm"), profile: p, faults: []string{"no machine image there has all of wasm below containerd; take it off this group, or have who runs the landscape add it to spec.machineImages[].versions[].cri[]"}},
		"an alias is none":       {now: onImage("suse-chost", "15.6.1", "", "kata"), profile: p, faults: []string{`type: Invalid value: "kata"`}},
		"another CRI":            {now: onImage("docker-only", "1.0.0", "", "gvisor"), profile: p, faults: []string{`spec.provider.workers[0].cri.name: Invalid value: "containerd": CloudProfile aws does not have it for machine image docker-only 1.0.0; no version of docker-only has all of it; set machine.image to one that has: ubuntu 22.10.2, suse-chost 15.6.1`}},
		"a part of a version":    {now: onImage("ubuntu", "22", "", "gvisor"), profile: p},
		"no version":             {now: onImage("ubuntu", "", "", "kata-containers"), profile: p, faults: []string{"for machine image ubuntu; no version"}},
		"an unknown image":       {now: onImage("plan9", "4", "", "gvisor"), profile: p},
		"no runtimes":            {now: onImage("ubuntu", "22.4.1", ""), profile: p},
		"taken before":           {now: onImage("ubuntu", "22.4.1", "", "gvisor"), old: onImage("ubuntu", "22.4.1", "", "gvisor"), profile: p},
		"another version":        {now: onImage("ubuntu", "22.4.1", "", "gvisor"), old: onImage("ubuntu", "22.9.2", "", "gvisor"), profile: p, faults: []string{first}},
		"another type":           {now: onImage("ubuntu", "22.4.1", "", "gvisor"), old: onImage("ubuntu", "22.4.1", ""), profile: p, faults: []string{first}},
		"another profile":        {now: onImage("ubuntu", "22.4.1", "", "gvisor"), old: with(onImage("ubuntu", "22.4.1", "", "gvisor"), func(s *Shoot) { s.Spec.CloudProfile = nil; s.Spec.CloudProfileName = "b" }), profile: p, faults: []string{first}},
		"the same by old name":   {now: onImage("ubuntu", "22.4.1", "", "gvisor"), old: with(onImage("ubuntu", "22.4.1", "", "gvisor"), func(s *Shoot) { s.Spec.CloudProfile = nil; s.Spec.CloudProfileName = "aws" }), profile: p},
		"a profile that is not":  {now: onImage("ubuntu", "22.4.1", "", "gvisor"), warning: "there is no CloudProfile aws, or Gardener has not read it yet"},
		"a shoot that goes":      {now: with(onImage("ubuntu", "22.4.1", "", "gvisor"), func(s *Shoot) { s.Metadata.DeletionTimestamp = &ending }), profile: p},
	} {
		t.Run(name, func(t *testing.T) {
			r := ShootOnProfile(c.now, c.old, byProfile, c.profile)
			if len(r.Faults) != len(c.faults) {
				t.Fatalf("%v", r.Faults)
			}
			for i, want := range c.faults {
				if !strings.Contains(r.Faults[i].Error(), want) {
					t.Errorf("%s\nhas no\n%s", r.Faults[i], want)
				}
			}
			if got := strings.Join(r.Warnings, "\n"); (got == "") != (c.warning == "") || !strings.Contains(got, c.warning) {
				t.Errorf("warnings: %s", got)
			}
		})
	}
}

func with(s *Shoot, change func(*Shoot)) *Shoot {
	change(s)
	return s
}

func TestReadProfile(t *testing.T) {
	own := ProfileRef{Kind: KindNamespacedCloudProfile, Namespace: "garden-team", Name: "own"}
	if p, err := ReadProfile(own, []byte(landscape), time.Now()); p != nil || err != nil {
		t.Errorf("one that Gardener has not merged: %+v %v", p, err)
	}
	merged := `{"spec":{"machineImages":[{"name":"other"}]},"status":{"cloudProfileSpec":{"machineImages":[{"name":"ubuntu"}]}}}`
	if p, err := ReadProfile(own, []byte(merged), time.Now()); err != nil || len(p.Images) != 1 || p.Images[0].Name != "ubuntu" {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := ReadProfile(own, []byte(`{"spec":[]}`), time.Now()); err == nil {
		t.Error("a list was read")
	}
	for want, s := range map[ProfileRef]*Shoot{
		byProfile: onImage("a", "1", ""),
		own:       with(onImage("a", "1", ""), func(s *Shoot) { s.Spec.CloudProfile = &ShootProfile{KindNamespacedCloudProfile, "own"} }),
	} {
		if got := s.Profile("garden-team"); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
