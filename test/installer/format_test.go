package installer

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// generated is containerd's own configuration, as containerd config default writes it
// in its newest version, with the folders and sockets of a test.
const generated = 0

// formats are versions of the configuration that a release of containerd reads, beside
// the one that the other tests use.
func (r release) formats() []int {
	if r.major == 1 {
		return []int{generated, 1}
	}
	return []int{generated, 1, 2, 4}
}

// A handler is added to each version of the configuration in that version's own names,
// pods run on it, and what others have written is there meanwhile and alone afterwards.
func TestConfigurationVersions(t *testing.T) {
	for _, r := range releases(t) {
		for _, format := range r.formats() {
			name := fmt.Sprint(r.name, "/version ", format)
			if format == generated {
				name = r.name + "/generated"
			}
			t.Run(name, func(t *testing.T) {
				r.format = format
				d := start(t, r, "")
				before := d.configFiles()
				all := d.handlers()
				plain := d.cri().pod(t, "plain", "")
				d.install(d.kata("1"))
				d.serves(append(all, "kata")...)
				if with := d.configFiles()[configName(d)]; !whole(with, before[configName(d)]) {
					t.Errorf("with a handler it is\n%s\nand was\n%s", with, before[configName(d)])
				}
				inside := d.cri().pod(t, "inside", "kata")
				if !d.cri().runs(t, plain) {
					t.Error("the restart has ended a pod")
				}
				d.install(small(t, "test", "1"))
				d.serves(append(all, "kata", "test")...)
				if !d.cri().runs(t, inside) || !d.cri().runs(t, plain) {
					t.Error("the second restart has ended a pod")
				}
				for _, id := range []string{inside, plain} {
					d.cri().remove(t, id)
				}
				d.uninstall("kata-containers")
				d.serves(append(all, "test")...)
				d.uninstall("test")
				d.serves(all...)
				same(t, before, d.configFiles())
				d.bare()
			})
		}
	}
}

// whole says whether a text is in another one whole, or in two parts around one thing.
func whole(with, text string) bool {
	n := 0
	for n < len(text) && n < len(with) && text[n] == with[n] {
		n++
	}
	return strings.HasSuffix(with, text[n:])
}

var sandboxImage = regexp.MustCompile(`(sandbox(?:_image)? = )['"].+['"]`)

// generatedConfig is what containerd config default says, kept away from the machine's
// own containerd.
func (d *daemon) generatedConfig() string {
	d.Helper()
	out, err := exec.Command(d.program, "config", "default").Output()
	if err != nil {
		d.Fatalf("containerd config default: %v", err)
	}
	text := strings.NewReplacer(
		"/var/lib/containerd", d.path("root"), "/run/containerd/containerd.sock", d.socket(), "/run/containerd", d.path("state"),
		"/etc/containerd", d.path("etc"), "/opt/containerd", d.path("opt"), `snapshotter = "overlayfs"`, `snapshotter = "native"`, "snapshotter = 'overlayfs'", "snapshotter = 'native'",
		"restrict_oom_score_adj = false", "restrict_oom_score_adj = true", "use_local_image_pull = false", "use_local_image_pull = true",
	).Replace(string(out))
	return sandboxImage.ReplaceAllString(text, fmt.Sprintf("${1}%q", pause))
}
