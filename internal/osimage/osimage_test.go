package osimage

import "testing"

func TestOfText(t *testing.T) {
	for text, want := range map[string]System{
		"Ubuntu 18.04.6 LTS":                                           "ubuntu",
		"Debian GNU/Linux 12 (bookworm)":                               "debian",
		"Garden Linux 1443.3":                                          "gardenlinux",
		"Flatcar Container Linux by Kinvolk 3815.2.2 (Oklo)":           "flatcar",
		"Fedora CoreOS 39.20240210.3.0":                                "coreos",
		"Red Hat Enterprise Linux CoreOS 415.92.202402201450-0 (Plow)": "coreos",
		"Red Hat Enterprise Linux 9.4 (Plow)":                          "rhel",
		"SUSE Linux Enterprise Server 15 SP5":                          "suse",
		"openSUSE Leap 15.5":                                           "suse",
		"Amazon Linux 2023":                                            "amzn",
		"Container-Optimized OS from Google":                           "cos",
		"Talos (v1.6.4)":                                               "talos",
		"Linux":                                                        "",
		"":                                                             "",
		"An Appliance based on Ubuntu":                                 "",
	} {
		if got := OfText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestOfRelease(t *testing.T) {
	for _, test := range []struct {
		id, variant string
		want        System
	}{
		{"ubuntu", "", "ubuntu"},
		{"gardenlinux", "", "gardenlinux"},
		{"fedora", "coreos", "coreos"},
		{"rhel", "coreos", "coreos"},
		{"rhcos", "", "coreos"},
		{"flatcar", "", "flatcar"},
		{"sles", "", "suse"},
		{"amzn", "", "amzn"},
		{"plan9", "", ""},
		{"", "", ""},
	} {
		if got := OfRelease(test.id, test.variant); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.id, test.variant, got, test.want)
		}
	}
}

func TestDiffers(t *testing.T) {
	for _, test := range []struct {
		image string
		is    System
		want  bool
	}{
		{"ubuntu", "ubuntu", false},
		{"ubuntu", "debian", true},
		{"coreos", "flatcar", false},
		{"coreos", "coreos", false},
		{"flatcar", "coreos", true},
		{"suse-chost", "suse", false},
		{"gardenlinux", "debian", true},
		{"rhel", "rocky", false},
		{"rocky", "rhel", true},
		{"ubuntu-of-our-own", "debian", false}, // nobody knows what that is
		{"ubuntu", "", false},                  // nor that
	} {
		if got := Differs(test.image, test.is); got != test.want {
			t.Errorf("%s on %s: %t", test.image, test.is, got)
		}
	}
}

// Every system that a node can be found to have is one that a pool can ask for.
func TestSystemsAreOfImages(t *testing.T) {
	of := map[System]bool{}
	for _, all := range images {
		for _, s := range all {
			of[s] = true
		}
	}
	for _, text := range texts {
		if !of[text.is] {
			t.Errorf("%s is of no image", text.is)
		}
	}
}

func TestVersionDiffers(t *testing.T) {
	for _, test := range []struct {
		version, text string
		want          bool
	}{
		{"18.04", "Ubuntu 18.04.6 LTS", false},
		{"18.4.20210415", "Ubuntu 18.04.6 LTS", false},
		{"22.04", "Ubuntu 18.04.6 LTS", true},
		{"22", "Ubuntu 22.04.4 LTS", false},
		{"1443.3.0", "Garden Linux 1443.3", false},
		{"1443.10.0", "Garden Linux 1443.3", true},
		{"3815.2.2", "Flatcar Container Linux by Kinvolk 3815.2.3 (Oklo)", false},
		{"3760.2.0", "Flatcar Container Linux by Kinvolk 3815.2.3 (Oklo)", true},
		{"15.4.20230410", "SUSE Linux Enterprise Server 15 SP4", false},
		{"15.5", "SUSE Linux Enterprise Server 15 SP4", true},
		{"15.5.1", "SUSE Linux Enterprise Server 15", false},
		{"12.5", "Debian GNU/Linux 12 (bookworm)", false},
		{"11", "Debian GNU/Linux 12 (bookworm)", true},
		{"v1.6.4", "Talos (v1.6.4)", false},
		{"4.15", "Red Hat Enterprise Linux CoreOS 415.92.202402201450-0 (Plow)", false},
		{"jammy", "Ubuntu 22.04.4 LTS", false},
		{"", "Ubuntu 22.04.4 LTS", false},
		{"1", "Container-Optimized OS from Google", false},
		{"99999999999999999999", "Ubuntu 22.04.4 LTS", false},
	} {
		if got := VersionDiffers(test.version, test.text); got != test.want {
			t.Errorf("%q, %q: %t", test.version, test.text, got)
		}
	}
}
