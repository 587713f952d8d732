// Package osimage says whether a machine runs the operating system that somebody expects,
// by the names of machine images and by what nodes and /etc/os-release say. It knows the
// common ones, and says nothing of others: a name that it does not know is no mistake.
package osimage

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// System is an operating system, by the ID that its /etc/os-release has; "" is one that
// is not known.
type System string

// images are the systems that a machine image of some name may have: Gardener's names,
// those of the installer's profiles, and those of os-release.
var images = map[string][]System{
	"ubuntu":      {"ubuntu"},
	"debian":      {"debian"},
	"gardenlinux": {"gardenlinux"},
	"flatcar":     {"flatcar"},
	"coreos":      {"flatcar", "coreos"},
	"suse-chost":  {"suse"},
	"sles":        {"suse"},
	"rhel":        {"rhel", "centos", "rocky", "almalinux", "ol", "fedora", "amzn"},
	"centos":      {"centos"},
	"rocky":       {"rocky"},
	"almalinux":   {"almalinux"},
	"fedora":      {"fedora"},
	"amzn":        {"amzn"},

	"bottlerocket": {"bottlerocket"},
	"talos":        {"talos"},
	"cos":          {"cos"},
}

// texts are how systems begin their PRETTY_NAME; the first that fits counts.
var texts = []struct {
	begins string
	is     System
}{
	{"ubuntu", "ubuntu"},
	{"debian", "debian"},
	{"garden linux", "gardenlinux"},
	{"gardenlinux", "gardenlinux"},
	{"flatcar", "flatcar"},
	{"fedora coreos", "coreos"},
	{"red hat enterprise linux coreos", "coreos"},
	{"centos stream coreos", "coreos"},
	{"container linux by coreos", "coreos"},
	{"suse linux", "suse"},
	{"sle micro", "suse"},
	{"opensuse", "suse"},
	{"red hat enterprise linux", "rhel"},
	{"centos", "centos"},
	{"rocky linux", "rocky"},
	{"almalinux", "almalinux"},
	{"oracle linux", "ol"},
	{"fedora", "fedora"},
	{"amazon linux", "amzn"},
	{"bottlerocket", "bottlerocket"},
	{"talos", "talos"},
	{"container-optimized os", "cos"},
}

// OfText is the system of a PRETTY_NAME, which is what a node has as
// status.nodeInfo.osImage.
func OfText(text string) System {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, t := range texts {
		if strings.HasPrefix(text, t.begins) {
			return t.is
		}
	}
	return ""
}

// ids are the systems by an ID of os-release where that is another word.
var ids = map[string]System{
	"sles": "suse", "sles_sap": "suse", "sle-micro": "suse", "sl-micro": "suse", "opensuse-leap": "suse", "opensuse-tumbleweed": "suse", "opensuse-leap-micro": "suse", "suse-chost": "suse",
	"rhcos": "coreos", "fedora-coreos": "coreos", "scos": "coreos",
}

// OfRelease is the system of an os-release, by its ID and VARIANT_ID. One that is
// derived from another (ID_LIKE) is not that.
func OfRelease(id, variant string) System {
	if variant == "coreos" {
		return "coreos"
	}
	if is, ok := ids[id]; ok {
		return is
	}
	for _, t := range texts {
		if t.is == System(id) {
			return t.is
		}
	}
	return ""
}

// Differs says that a machine with some system is not of a machine image of that name.
// Where either is not known nobody can tell, and it does not.
func Differs(image string, is System) bool {
	of, known := images[image]
	return known && is != "" && !slices.Contains(of, is)
}

var (
	numbers     = regexp.MustCompile(`[0-9]+(\.[0-9]+)*`)
	servicePack = regexp.MustCompile(`\b([0-9]+) SP([0-9]+)\b`)
	leading     = regexp.MustCompile(`^v?([0-9]+(\.[0-9]+)*)`)
)

// VersionDiffers says that a PRETTY_NAME tells another version than that of a machine
// image. The first two numbers are compared, as far as both have them: images are called
// 18.04 and 18.4.20210415, and nodes Ubuntu 18.04.6 LTS. What follows changes by updates.
func VersionDiffers(version, text string) bool {
	wanted := leading.FindStringSubmatch(version)
	// The number of Red Hat's CoreOS is made of two others.
	if wanted == nil || strings.HasPrefix(strings.ToLower(text), "red hat enterprise linux coreos") {
		return false
	}
	found := numbers.FindString(text)
	if sp := servicePack.FindStringSubmatch(text); sp != nil {
		found = sp[1] + "." + sp[2]
	}
	if found == "" {
		return false
	}
	a, b := strings.Split(wanted[1], "."), strings.Split(found, ".")
	for i := range min(len(a), len(b), 2) {
		if !sameNumber(a[i], b[i]) {
			return true
		}
	}
	return false
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x == y
}
