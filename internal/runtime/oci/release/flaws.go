package release

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.run/internal/pod"
)

// flaw is one that a container or an image can use. Each branch that was mended has
// the release in which it was; older branches were left as they are.
type flaw struct {
	id, what string
	since    string // the first version that has it; "" for all
	mended   []string
}

// flaws are those by which a container gets at the host, from the changelogs of
// the runtimes. Left out is what no request to Fairlead reaches: capabilities of
// commands by flag (CVE-2022-29162, CVE-2022-27650), users of commands by flag
// (CVE-2026-30892), rootless containers (CVE-2023-25809), paths and maps of
// whoever writes the bundle (CVE-2021-43784), runtimes of another kind that crun
// brings along (CVE-2025-24965), and links in the place of /proc and /dev, with which
// images are refused (CVE-2023-28642, CVE-2026-41579, CVE-2026-47766).
var flaws = map[string][]flaw{
	"runc": {
		{"CVE-2019-5736", "a container can overwrite the runtime's program", "", []string{"1.0.0-rc7"}},
		{"CVE-2019-16884", "an image can take the AppArmor profile off its containers", "", []string{"1.0.0-rc9"}},
		{"CVE-2019-19921", "containers that share a volume can get at the host's /proc", "", []string{"1.0.0-rc10"}},
		{"CVE-2021-30465", "a container can have a volume mounted outside of its root", "", []string{"1.0.0-rc95"}},
		{"CVE-2023-27561", "containers that share a volume can get at the host's /proc", "1.0.0-rc95", []string{"1.1.5"}},
		{"CVE-2024-21626", "a container can reach the host's files by a descriptor that is left open", "1.0.0-rc93", []string{"1.1.12"}},
		{"CVE-2024-45310", "containers that share a volume can make empty files on the host", "", []string{"1.1.14", "1.2.0-rc.3"}},
		{"CVE-2025-31133", "a container can write to masked files of the host's /proc", "", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}},
		{"CVE-2025-52565", "a container with a terminal can write to files of the host's /proc", "1.0.0-rc3", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}},
		{"CVE-2025-52881", "a container can turn writes of the runtime to other files of /proc", "", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}},
	},
	"crun": {
		{"CVE-2019-16884", "an image can take the security label off its containers", "", []string{"0.10"}},
		{"CVE-2019-18837", "an image can have the host's files mounted into its containers by a link", "", []string{"0.10.5"}},
	},
}

// Flaws are those that are known of a version of a runtime. There are none of a
// runtime that is not known here.
func Flaws(runtime, number string) []pod.Flaw {
	v, ok := parse(number)
	if !ok {
		return nil
	}
	var out []pod.Flaw
	for _, f := range flaws[runtime] {
		if f.in(v) {
			out = append(out, pod.Flaw{ID: f.id, What: f.what, MendedIn: slices.Clone(f.mended)})
		}
	}
	return out
}

// in says whether a version has the flaw. Releases of the last branch that was
// mended, and all later branches, follow from its first mended one.
func (f flaw) in(v version) bool {
	if since, ok := parse(f.since); ok && v.before(since) {
		return false
	}
	last := version{}
	for _, m := range f.mended {
		fixed, _ := parse(m)
		if fixed.branch() == v.branch() {
			return v.before(fixed)
		}
		last = fixed
	}
	return v.before(last)
}

// Floor says why a version is below the one that the configuration wants of a
// handler, or nil.
func Floor(handler, runtime, number, least string) error {
	switch {
	case least == "":
		return nil
	case !Valid(number):
		return fmt.Errorf("it is %s %q, which is no version that could be compared with handlers.%s.min_version = %q", runtime, number, handler, least)
	case Older(number, least):
		return fmt.Errorf("it is %s %s, and handlers.%s.min_version wants %s%s; install that or a newer one", runtime, number, handler, least, because(Flaws(runtime, number)))
	}
	return nil
}

func because(known []pod.Flaw) string {
	if len(known) == 0 {
		return ""
	}
	ids := make([]string, len(known))
	for i, f := range known {
		ids[i] = f.ID
	}
	return " (by its version it has " + strings.Join(ids, ", ") + ")"
}
