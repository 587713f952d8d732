// Package profile says what kind of node this is: where its operating system lets
// programs be put, and where its distribution of Kubernetes has the runtime's
// socket and configuration.
//
// It looks at files and at the kubelet's command line. What it cannot tell for
// certain it refuses, with the flags that say it.
package profile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/osimage"
)

// OS is an operating system.
type OS struct {
	// Name is that of the profile.
	Name string
	// BinaryPath is where runtimes are put; "" if that has to be said.
	BinaryPath string
	// Ctr are where containerd's own client may be, and CtrFrom what brings it.
	Ctr     []string
	CtrFrom string
}

// FindCtr is where containerd's client is below root; "" if it is not there.
func (o OS) FindCtr(root string) string {
	for _, path := range o.Ctr {
		if exists(root, path) {
			return path
		}
	}
	return ""
}

// Where ctr is: beside containerd, or where its own archive is unpacked.
var (
	ctrBin  = []string{"/usr/bin/ctr", "/usr/local/bin/ctr"}
	ctrSbin = []string{"/usr/sbin/ctr", "/usr/bin/ctr", "/usr/local/bin/ctr"}
	ctrOpt  = []string{"/usr/bin/ctr", "/opt/bin/ctr", "/var/bin/ctr"}
)

// systems are the profiles by the ID in os-release, or one in ID_LIKE.
var systems = []struct {
	ids []string
	OS
}{
	{[]string{"ubuntu"}, OS{"ubuntu", "/usr/bin", ctrBin, "the package containerd or containerd.io"}},
	{[]string{"flatcar", "coreos", "fedora-coreos", "rhcos"}, OS{"coreos", "/var/bin", ctrOpt, "the system itself"}},
	{[]string{"suse-chost", "sles", "sle-micro", "sl-micro", "opensuse", "opensuse-leap", "opensuse-tumbleweed", "suse"}, OS{"suse-chost", "/usr/sbin", ctrSbin, "the package containerd-ctr"}},
	{[]string{"debian", "gardenlinux"}, OS{"debian", "/usr/bin", ctrBin, "the package containerd or containerd.io"}},
	{[]string{"rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn"}, OS{"rhel", "/usr/bin", ctrBin, "the package containerd or containerd.io"}},
}

// closed are systems on which nothing can be installed from outside.
var closed = map[string]string{
	"bottlerocket": "its root file system is read-only and verified, and its containerd configuration is made from its own settings",
	"talos":        "its root file system is read-only; use a system extension",
	"cos":          "all that can be written is mounted with noexec",
}

// DetectOS reads os-release below root. A name that is given is taken for it.
func DetectOS(root, name string) (OS, error) {
	if name != "" {
		for _, s := range systems {
			if s.Name == name || slices.Contains(s.ids, name) {
				return s.OS, nil
			}
		}
		if why := closed[name]; why != "" {
			return OS{}, refuse(name, why)
		}
		open, shut := Systems()
		return OS{}, fault.New(payload.ConfigurationProblem, "there is no profile %s; there are %s, and nothing can be installed on %s", name, strings.Join(open, ", "), strings.Join(shut, ", "))
	}
	release, err := readRelease(root)
	if err != nil {
		return OS{}, err
	}
	id := release["ID"]
	if why := closed[id]; why != "" {
		return OS{}, refuse(id, why)
	}
	// An image-based variant has a read-only /usr, whatever it is based on.
	ids := append([]string{id + "-" + release["VARIANT_ID"], release["VARIANT_ID"], id}, strings.Fields(release["ID_LIKE"])...)
	for _, want := range ids {
		for _, s := range systems {
			if slices.Contains(s.ids, want) {
				return s.OS, nil
			}
		}
	}
	return OS{Name: id}, nil
}

func refuse(id, why string) error {
	return fault.New(payload.UnsupportedNode, "runtimes cannot be installed on %s: %s", id, why)
}

// Systems are the names of the profiles, and of the systems on which nothing can be installed.
func Systems() (open, shut []string) {
	for _, s := range systems {
		open = append(open, s.Name)
	}
	return open, slices.Sorted(maps.Keys(closed))
}

func readRelease(root string) (map[string]string, error) {
	var f *os.File
	var err error
	for _, path := range []string{"etc/os-release", "usr/lib/os-release"} {
		if f, err = os.Open(filepath.Join(root, path)); err == nil {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look which operating system this is: %w", err)
	}
	defer func() { _ = f.Close() }()
	all := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		if plain, err := strconv.Unquote(value); err == nil {
			value = plain
		}
		all[key] = strings.Trim(value, "'")
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return all, nil
}

// CheckImage refuses a node whose operating system is known to be another one than that
// of a machine image; "" is any.
func CheckImage(root, image string) error {
	release, err := readRelease(root)
	if err != nil {
		return err
	}
	if is := osimage.OfRelease(release["ID"], release["VARIANT_ID"]); osimage.Differs(image, is) {
		return fault.New(payload.UnsupportedNode, "this node has %s, and its pool is of machine image %s; give it a pool of its own, or correct the pool's machineImage", cmp.Or(release["PRETTY_NAME"], string(is)), image)
	}
	return nil
}

// CheckBinaryPath says why a folder cannot be where runtimes are put.
func CheckBinaryPath(path string, system OS) error {
	switch {
	case path == "":
		return fault.New(payload.ConfigurationProblem, "the operating system %q has no profile; say by binaryPath where programs may be put", system.Name)
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/":
		return fault.New(payload.ConfigurationProblem, "binaryPath %q is no clean absolute path of a folder", path)
	case system.Name == "coreos" && (path == "/usr" || strings.HasPrefix(path, "/usr/")):
		return fault.New(payload.ConfigurationProblem, "binaryPath %s is below /usr, which is read-only on %s; use /var/bin or /opt", path, system.Name)
	}
	return nil
}
