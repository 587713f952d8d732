package doctor

import (
	"path/filepath"
	"slices"

	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/files"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/profile"
	"fairlead.run/internal/installer/view"
)

// leftover is something that is there under a name, and who has left it.
type leftover struct{ pattern, who string }

// foreign are what other installers leave on nodes.
var foreign = []leftover{
	{"/opt/kata", "kata-deploy"},
	{"/opt/kata-artifacts", "kata-deploy"},
	{"/var/bin/containerruntimes", "Gardener"},
	{"/opt/kwasm", "KWasm"},
	{"/var/snap/microk8s/common/kwasm", "KWasm"},
}

// beside are what they leave in the folders of a runtime's configuration.
var beside = []leftover{
	{"*.d/*kata*", "kata-deploy"},
	{"*.toml*.bak*", "another installer"},
	{"*.d/99-nvidia.*", "the NVIDIA toolkit"},
}

func (e *exam) leftovers() {
	here := e.installed()
	for _, f := range foreign {
		if !slices.Contains(here, f.pattern) {
			e.foreign(e.path(f.pattern), f.who)
		}
	}
	for _, dir := range profile.Folders(e.dist) {
		dir = e.real(dir)
		for _, f := range beside {
			e.foreign(filepath.Join(dir, f.pattern), f.who)
		}
		e.halfWritten(dir)
	}
	e.halfWritten(e.real(profile.Starters))
}

func (e *exam) halfWritten(dir string) {
	for _, path := range found(filepath.Join(dir, files.Temporary)) {
		e.add(Finding{Warning, "leftover", path, "an installer was killed while it wrote this", "run fairlead install again, or remove it"})
	}
}

// installed are the folders of types that fairlead install has put on the node. They may be
// where others have theirs, as /opt/kata. A journal that cannot be read names none.
func (e *exam) installed() []string {
	all, err := journal.Journal{Dir: e.real(view.State)}.All()
	if err != nil {
		return nil
	}
	var own []string
	for _, r := range all {
		own = append(own, r.Base)
	}
	return own
}

// own says whether a file of the runtime's configuration has a name that fairlead install
// gives to its own.
func own(path string) bool {
	name := filepath.Base(path)
	return containerd.Own(name) || crio.Own(name)
}

func (e *exam) foreign(pattern, who string) {
	for _, path := range found(pattern) {
		if own(path) {
			continue
		}
		e.add(Finding{Warning, "leftover", path, "it looks like something of " + who, "remove it by the means of " + who + " if that is not used any more"})
	}
}

// found are the files of a pattern. These are ours, and sound.
func found(pattern string) []string {
	all, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	return all
}
