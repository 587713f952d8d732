package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"
)

func good() *RuntimePayload {
	sum := strings.Repeat("ab", 32)
	return &RuntimePayload{
		APIVersion: APIVersion, Kind: KindPayload, Type: "gvisor", Version: "20260905.0", OS: "linux",
		Architectures: []string{"amd64", "arm64"},
		Files: []File{
			{Path: "runsc", Source: "amd64/runsc", Arch: "amd64", Mode: "0755", Size: 10, SHA256: sum},
			{Path: "runsc", Source: "arm64/runsc", Arch: "arm64", Mode: "0755", Size: 11, SHA256: sum},
			{Path: "bin/shim", Mode: "0755", Size: 1, SHA256: sum},
			{Path: "LICENSE", Mode: "0644", Size: 0, SHA256: sum},
			{Path: "bin/containerd-shim-runsc-v2", Mode: "0755", Size: 1, SHA256: sum},
		},
		Configs: []Config{{Path: "runsc.toml", Content: "binary_name = \"" + PayloadDir + "/runsc\"\n"}},
		Handlers: []Handler{{
			Name: "runsc",
			Containerd: &ContainerdHandler{
				RuntimeType: "io.containerd.runsc.v1", RuntimePath: "bin/shim", PodAnnotations: []string{"dev.gvisor.*"},
				Options: &ContainerdOptions{TypeURL: "io.containerd.runsc.v1.options", ConfigPath: ConfigDir + "/runsc.toml"},
			},
			CRIO:     &CRIOHandler{RuntimeType: "vm", RuntimePath: "bin/containerd-shim-runsc-v2", RuntimeConfigPath: ConfigDir + "/runsc.toml"},
			Overhead: map[string]string{"memory": "30Mi"},
		}},
		Checks:   []Check{{Name: "version", Command: []string{"runsc", "--version"}}},
		Devices:  []string{"/dev/null"},
		Overhead: map[string]string{"cpu": "10m"},
	}
}

func TestDecodePayload(t *testing.T) {
	data, err := json.Marshal(good())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodePayload(data); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		strings.Replace(string(data), `"type"`, `"Type"`, 1),
		strings.Replace(string(data), `"os"`, `"extra":1,"os"`, 1),
		strings.Replace(string(data), `"os":"linux"`, `"os":"linux","os":"linux"`, 1),
		string(data) + "{}",
		"", "null", "[]",
		strings.Repeat(" ", MaxDocument+1),
	} {
		if _, err := DecodePayload([]byte(bad)); err == nil {
			t.Errorf("%.80s was taken", bad)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for want, change := range map[string]func(*RuntimePayload){
		"apiVersion": func(p *RuntimePayload) { p.APIVersion = "v1" },
		"kind":       func(p *RuntimePayload) { p.Kind = "Pod" },
		"type":       func(p *RuntimePayload) { p.Type = "g/visor" },
		"type: Invalid value: \"a234567890b234567890c23456\": use lower case letters, digits and -, 25 at most": func(p *RuntimePayload) { p.Type = "a234567890b234567890c23456" },
		"version":                             func(p *RuntimePayload) { p.Version = ".." },
		"version: Invalid value: \"etc-1\"":   func(p *RuntimePayload) { p.Version = "etc-1" },
		"os":                                  func(p *RuntimePayload) { p.OS = "windows" },
		"architectures: Required":             func(p *RuntimePayload) { p.Architectures = nil },
		"architectures[1]: Duplicate":         func(p *RuntimePayload) { p.Architectures[1] = "amd64" },
		"architectures[0]: Unsupported":       func(p *RuntimePayload) { p.Architectures[0] = "vax" },
		"files: Required":                     func(p *RuntimePayload) { p.Files = nil },
		"files[0].path":                       func(p *RuntimePayload) { p.Files[0].Path = "../runsc" },
		"files[0].path: Invalid value: \"/a":  func(p *RuntimePayload) { p.Files[0].Path = "/a" },
		"files[0].path: Invalid value: \"a//": func(p *RuntimePayload) { p.Files[0].Path = "a//b" },
		"files[3].path":                       func(p *RuntimePayload) { p.Files[3].Path = ManifestName },
		"files[1].path: Duplicate":            func(p *RuntimePayload) { p.Files[1].Arch = "" },
		"files[0].source":                     func(p *RuntimePayload) { p.Files[0].Source = "/etc/shadow" },
		"files[0].arch":                       func(p *RuntimePayload) { p.Files[0].Arch = "s390x" },
		"files[0].mode":                       func(p *RuntimePayload) { p.Files[0].Mode = "4755" },
		"files[3].mode":                       func(p *RuntimePayload) { p.Files[3].Mode = "0666" },
		"files[0].size":                       func(p *RuntimePayload) { p.Files[0].Size = -1 },
		"files[0].sha256":                     func(p *RuntimePayload) { p.Files[0].SHA256 = "AB" },
		"bin is a file":                       func(p *RuntimePayload) { p.Files[3].Path = "bin" },
		"configs[0].path":                     func(p *RuntimePayload) { p.Configs[0].Path = "a/b" },
		"configs[0].content":                  func(p *RuntimePayload) { p.Configs[0].Content = strings.Repeat("x", maxConfig+1) },
		"handlers: Required":                  func(p *RuntimePayload) { p.Handlers = nil },
		"handlers[0].name":                    func(p *RuntimePayload) { p.Handlers[0].Name = "Runsc" },
		"handlers[0].name: Forbidden":         func(p *RuntimePayload) { p.Handlers[0].Name = "runc" },
		"handlers[1].name: Duplicate":         func(p *RuntimePayload) { p.Handlers = append(p.Handlers, p.Handlers[0]) },
		"handlers[0]: Required":               func(p *RuntimePayload) { p.Handlers[0].Containerd, p.Handlers[0].CRIO = nil, nil },
		"containerd.runtimeType":              func(p *RuntimePayload) { p.Handlers[0].Containerd.RuntimeType = "runsc" },
		"containerd.minVersion":               func(p *RuntimePayload) { p.Handlers[0].Containerd.MinVersion = "1" },
		"containerd.runtimePath":              func(p *RuntimePayload) { p.Handlers[0].Containerd.RuntimePath = "shim" },
		"has no x":                            func(p *RuntimePayload) { p.Handlers[0].Containerd.RuntimePath = "LICENSE" },
		"there is none for arm64":             func(p *RuntimePayload) { p.Files[2].Arch = "amd64" },
		"containerd.sandboxer":                func(p *RuntimePayload) { p.Handlers[0].Containerd.Sandboxer = "vm" },
		"containerd.podAnnotations[0]":        func(p *RuntimePayload) { p.Handlers[0].Containerd.PodAnnotations[0] = "a\nb" },
		"options.configPath":                  func(p *RuntimePayload) { p.Handlers[0].Containerd.Options.ConfigPath = "runsc.toml" },
		"options.configPath: Invalid value: \"${CONFIG}/..": func(p *RuntimePayload) {
			p.Handlers[0].Containerd.Options.ConfigPath = ConfigDir + "/../x"
		},
		"crio.runtimeType":        func(p *RuntimePayload) { p.Handlers[0].CRIO.RuntimeType = "pod" },
		"crio.runtimePath":        func(p *RuntimePayload) { p.Handlers[0].CRIO.RuntimePath = "" },
		"containerd-shim-NAME-v2": func(p *RuntimePayload) { p.Handlers[0].CRIO.RuntimePath = "bin/shim" },
		"crio.runtimeConfigPath":  func(p *RuntimePayload) { p.Handlers[0].CRIO.RuntimeType = "oci" },
		"crio.runtimeRoot":        func(p *RuntimePayload) { p.Handlers[0].CRIO.RuntimeRoot = "/" },
		"overhead[memory]":        func(p *RuntimePayload) { p.Handlers[0].Overhead["memory"] = "lots" },
		"overhead[disk]":          func(p *RuntimePayload) { p.Overhead["disk"] = "1" },
		"checks[0].command":       func(p *RuntimePayload) { p.Checks[0].Command = nil },
		"checks[0].command[0]":    func(p *RuntimePayload) { p.Checks[0].Command[0] = "/bin/sh" },
		"checks[0].timeoutSecond": func(p *RuntimePayload) { p.Checks[0].TimeoutSeconds = 601 },
		"devices[0]":              func(p *RuntimePayload) { p.Devices[0] = "/dev/../etc/shadow" },
	} {
		p := good()
		change(p)
		if err := p.Validate(nil).ToAggregate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}

func TestSettings(t *testing.T) {
	s, err := DecodeSettings([]byte(`{"apiVersion":"` + APIVersion + `","kind":"InstallSettings","handlers":["runsc"],"configs":[{"path":"runsc.toml","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if errs := s.CheckAgainst(good(), nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	s.Handlers[0], s.Configs[0].Path = "kata", "other.toml"
	err = s.CheckAgainst(good(), nil).ToAggregate()
	if err == nil || !strings.Contains(err.Error(), "handlers[0]") || !strings.Contains(err.Error(), "configs[0].path") {
		t.Fatal(err)
	}
	if _, err := DecodeSettings([]byte(`{"apiVersion":"` + APIVersion + `","kind":"InstallSettings","flags":{}}`)); err == nil {
		t.Fatal("an unknown field was taken")
	}
}

func TestResult(t *testing.T) {
	r, err := DecodeResult([]byte(`{"apiVersion":"` + APIVersion + `","kind":"InstallResult","type":"gvisor","state":"Refused","reason":"PayloadInvalid","later":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if r.State != Refused || !r.Reason.Permanent() {
		t.Fatalf("read %+v", r)
	}
	if _, err := DecodeResult([]byte(`{"kind":"InstallResult"}`)); err == nil {
		t.Fatal("a result without a version was taken")
	}
}

func FuzzDecodePayload(f *testing.F) {
	data, err := json.Marshal(good())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"files":[{"path":"..","mode":"07"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePayload(data)
		if err != nil {
			return
		}
		for _, file := range p.Files {
			if !inside(file.Path) || file.Source != "" && !inside(file.Source) {
				t.Fatalf("%q from %q leaves its folder", file.Path, file.Source)
			}
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodePayload(again); err != nil {
			t.Fatalf("what was taken is refused when written again: %v", err)
		}
	})
}
