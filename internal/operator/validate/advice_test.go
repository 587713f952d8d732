package validate

import (
	"strings"
	"testing"

	"fairlead.run/internal/operator/plugins"
)

// advised is a landscape in which some images are said to take what nobody can install there.
const advised = `{"spec":{"machineImages":[
 {"name":"talos","versions":[{"version":"1.11.0","cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"},{"type":"kata-containers"}]}]}]},
 {"name":"ubuntu","versions":[{"version":"24.4.0","cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"}]}]}]},
 {"name":"suse-chost","versions":[{"version":"15.6.1","architectures":["arm64"],"cri":[{"name":"containerd","containerRuntimes":[{"type":"gvisor"},{"type":"kata-containers"}]}]}]}],
"machineTypes":[
 {"name":"m5.large","architecture":"amd64"},
 {"name":"m5.metal","architecture":"amd64","capabilities":{"nestedVirtualization":["unsupported"]}},
 {"name":"m5.old","architecture":"amd64","usable":false,"capabilities":{"nestedVirtualization":["supported"]}},
 {"name":"m6i.metal","architecture":"amd64"},
 {"name":"m6g.large","architecture":"arm64"},
 {"name":"m8i.large","architecture":"amd64"}]}}`

// What is advised about a shoot is what none of the rules refuses next.
func TestAdviceIsTaken(t *testing.T) {
	p := profiled(t, advised)
	k := Known{Plugins: plugins.All(), Profile: p, Capability: capability(t, DefaultCapability)}
	on := func(machine, arch, image, version string, types ...string) *Shoot {
		s := onImage(image, version, arch, types...)
		s.Spec.Kubernetes.Version, s.Spec.Provider.Type = "1.33.1", "aws"
		s.Spec.Provider.Workers[0].Machine.Type = machine
		return s
	}
	look := func(s *Shoot) string {
		var all []string
		for _, r := range []Result{k.Shoot(s), ShootOnProfile(s, nil, byProfile, p)} {
			for _, f := range r.Faults {
				all = append(all, f.Error())
			}
		}
		return strings.Join(all, "\n")
	}
	without := func(change func(*Worker)) *Shoot {
		s := on("m5.large", "", "ubuntu", "24.4.0", "gvisor")
		change(&s.Spec.Provider.Workers[0])
		return s
	}
	for name, c := range map[string]struct {
		wrong  *Shoot
		says   string
		advice *Shoot // nil: to have less
	}{
		"a machine that there is, and of which nothing else is said": {
			on("m5.large", "", "ubuntu", "24.4.0", "kata"), "choose one that can: m6i.metal, or take kata-containers off", on("m6i.metal", "", "", "", "kata"),
		},
		"a machine of the architecture": {
			on("m6g.xlarge", "arm64", "suse-chost", "15.6.1", "kata-containers"), "no other machine type there can; have who runs the landscape add one, or take", nil,
		},
		"an image on which it is refused": {
			on("m6i.metal", "", "ubuntu", "24.4.0", "kata-containers"), "no machine image there has all of kata-containers below containerd; take it off this group", nil,
		},
		"a refused image": {
			on("m5.large", "", "talos", "1.11.0", "gvisor"), "set machine.image to one that has all that this group asks for: ubuntu 24.4.0", on("m5.large", "", "ubuntu", "24.4.0", "gvisor"),
		},
		"a refused image, and no other": {
			on("m6i.metal", "", "talos", "1.11.0", "kata-containers"), "take containerRuntimes off this group, as no other machine image there has all of kata-containers", nil,
		},
		"a CRI runtime": {without(func(w *Worker) { w.CRI.Name = "" }), "give containerd", on("m5.large", "", "ubuntu", "24.4.0", "gvisor")},
		"another one":   {without(func(w *Worker) { w.CRI.Name = "cri-o" }), `supported values: "containerd"`, on("m5.large", "", "ubuntu", "24.4.0", "gvisor")},
	} {
		t.Run(name, func(t *testing.T) {
			got := look(c.wrong)
			if !strings.Contains(got, c.says) || strings.Contains(got, "crio") {
				t.Errorf("%s\nhas no\n%s", got, c.says)
			}
			if c.advice == nil {
				return
			}
			if next := look(c.advice); next != "" {
				t.Errorf("what was advised is refused: %s", next)
			}
		})
	}
	// A pool that has CRI-O is not told to take an image that has containerd only.
	pool := poolOf("gvisor")
	pool.Spec.CRI.Name, pool.Spec.MachineImage.Name = "crio", "talos"
	all := known()
	all.Payload = nil
	for _, f := range all.Pool(pool).Faults {
		if strings.Contains(f.Error(), "flatcar") || !strings.Contains(f.Error(), "choose one of debian, rhel, ubuntu") {
			t.Error(f)
		}
	}
}

// A type that groups ask for by different names is warned of, with the place.
func TestNamesOfATypeAreOne(t *testing.T) {
	k := Known{Plugins: plugins.All()}
	s := onImage("ubuntu", "24.4.0", "", "kata-containers", "gvisor")
	s.Spec.Provider.Workers = append(s.Spec.Provider.Workers, s.Spec.Provider.Workers[0], onImage("ubuntu", "24.4.0", "", "gvisor", "kata").Spec.Provider.Workers[0])
	if got := k.Shoot(s).Warnings; len(got) != 1 || !strings.HasPrefix(got[0], "spec.provider.workers[2].cri.containerRuntimes[1].type: another group asks for it as kata-containers") {
		t.Errorf("%q", got)
	}
}
