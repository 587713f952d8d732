package osc

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	payload "fairlead.run/api/payload/v1alpha1"
)

const object = `{"metadata":{"name":"osc"},"spec":{"purpose":"reconcile","files":[{"path":"/etc/a","content":{"inline":{"data":"x"}}},{"path":"/usr/bin/gvisor/0/runsc"}],
"criConfig":{"name":"containerd","cgroupDriver":"systemd","containerd":{"sandboxImage":"pause","plugins":[{"path":["other"],"values":{"a":1}},{"op":"add","path":["io.containerd.grpc.v1.cri","containerd","runtimes","runsc"],"values":{"old":true}}]}}}}`

func order() *Order {
	return &Order{
		Image: "registry.example/gvisor@sha256:x", Arch: "amd64", BinaryPath: "/usr/bin",
		Payload: &payload.RuntimePayload{
			Type: "gvisor", Version: "1",
			Files: []payload.File{
				{Path: "runsc", Source: "amd64/runsc", Arch: "amd64", Mode: "0755"}, {Path: "runsc", Source: "arm64/runsc", Arch: "arm64", Mode: "0755"}, {Path: "LICENSE", Mode: "0644"},
			},
			Configs: []payload.Config{{Path: "runsc.toml", Content: "binary_name = \"${PAYLOAD}/runsc\"\n"}},
			Handlers: []payload.Handler{
				{Name: "runsc", Containerd: &payload.ContainerdHandler{RuntimeType: "io.containerd.runsc.v1", RuntimePath: "runsc", Options: &payload.ContainerdOptions{TypeURL: "io.containerd.runsc.v1.options", ConfigPath: "${CONFIG}/runsc.toml"}}},
				{Name: "crio-only", CRIO: &payload.CRIOHandler{}},
			},
		},
	}
}

// What a machine gets, what of another release goes, and what of others stays.
func TestPut(t *testing.T) {
	var had, want map[string]any
	o := order()
	folders := strings.NewReplacer("gvisor/1/", "gvisor/"+path.Base(o.dir())+"/", "gvisor/etc-1/", "gvisor/"+path.Base(o.configDir())+"/")
	for text, into := range map[string]*map[string]any{object: &had, `{"metadata":{"name":"osc"},"spec":{"purpose":"reconcile","files":[
		{"path":"/etc/a","content":{"inline":{"data":"x"}}},
		{"path":"/usr/bin/gvisor/1/runsc","permissions":493,"content":{"imageRef":{"image":"registry.example/gvisor@sha256:x","filePathInImage":"/amd64/runsc"}}},
		{"path":"/usr/bin/gvisor/1/LICENSE","permissions":420,"content":{"imageRef":{"image":"registry.example/gvisor@sha256:x","filePathInImage":"/LICENSE"}}},
		{"path":"/usr/bin/gvisor/etc-1/runsc.toml","permissions":420,"content":{"inline":{"encoding":"","data":"binary_name = \"/usr/bin/gvisor/1/runsc\"\n"}}}],
		"criConfig":{"name":"containerd","cgroupDriver":"systemd","containerd":{"sandboxImage":"pause","plugins":[{"path":["other"],"values":{"a":1}},
		{"op":"add","path":["io.containerd.grpc.v1.cri","containerd","runtimes","runsc"],"values":{"runtime_type":"/usr/bin/gvisor/1/runsc",
		"pod_annotations":[],"container_annotations":[],"privileged_without_host_devices":false,"options":{"TypeUrl":"io.containerd.runsc.v1.options","ConfigPath":"/usr/bin/gvisor/etc-1/runsc.toml"}}}]}}}}`: &want} {
		if err := json.Unmarshal([]byte(folders.Replace(text)), into); err != nil {
			t.Fatal(err)
		}
	}
	files, err := o.Files()
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := o.Plugins()
	if err != nil {
		t.Fatal(err)
	}
	handlers := []string{"runsc", "crio-only"}
	for range 2 { // the second time changes nothing
		if err := Put(had, Entries{files, plugins, Base("/usr/bin", "gvisor"), handlers}); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(had)
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if err := Put(had, Entries{nil, nil, Base("/usr/bin", "gvisor"), handlers}); err != nil {
		t.Fatal(err)
	}
	spec := had["spec"].(map[string]any)
	if left := spec["files"].([]any); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
	if left := spec["criConfig"].(map[string]any)["containerd"].(map[string]any)["plugins"].([]any); len(left) != 2 || fmt.Sprint(left[1]) != "map[op:remove path:[io.containerd.grpc.v1.cri containerd runtimes runsc]]" {
		t.Errorf("plugins: %v", left)
	}
	for _, bad := range []Entry{{}, {"spec": Entry{}}} {
		if Put(bad, Entries{Base: "/a"}) == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// A machine that runs pods of one payload is never told to write another one over it.
func TestFoldersAreOfOnePayload(t *testing.T) {
	was := order()
	for name, change := range map[string]func(*Order){
		"image":           func(o *Order) { o.Image = "registry.example/gvisor@sha256:y" },
		"content":         func(o *Order) { o.Payload.Files[0].SHA256 = "aa" },
		"source":          func(o *Order) { o.Payload.Files[0].Source = "amd64/other" },
		"version":         func(o *Order) { o.Payload.Version = "2" },
		"config":          func(o *Order) { o.Payload.Configs[0].Content = "a = 1\n" },
		"setting":         func(o *Order) { o.Settings.Configs = []payload.Config{{Path: "runsc.toml", Content: "a = 1\n"}} },
		"another mirror":  func(o *Order) { o.Image = "mirror.example/gvisor@sha256:x" },
		"another handler": func(o *Order) { o.Payload.Handlers = o.Payload.Handlers[:1] },
	} {
		now := order()
		change(now)
		moves := !strings.HasPrefix(name, "another")
		files := moves && name != "config" && name != "setting"
		if (now.dir() != was.dir()) != files || (now.configDir() != was.configDir()) != moves {
			t.Errorf("another %s: %s and %s were %s and %s", name, now.dir(), now.configDir(), was.dir(), was.configDir())
		}
	}
}

// What pods may still run from has its entries until the release after the next one.
func TestFormerReleaseStays(t *testing.T) {
	had := Entry{"spec": Entry{"criConfig": Entry{}}}
	put := func(image string, change func(*Order)) *Order {
		t.Helper()
		o := order()
		o.Image = image
		// Its table names the config alone, and that the program.
		o.Payload.Handlers[0].Containerd.RuntimePath = ""
		if change != nil {
			change(o)
		}
		files, err := o.Files()
		if err != nil {
			t.Fatal(err)
		}
		plugins, err := o.Plugins()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time changes nothing
			if err := Put(had, Entries{files, plugins, o.base(), []string{"runsc"}}); err != nil {
				t.Fatal(err)
			}
		}
		return o
	}
	has := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range had["spec"].(Entry)["files"].([]any) {
			if dir := path.Dir(e.(Entry)["path"].(string)); !slices.Contains(got, dir) {
				got = append(got, dir)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("files are in %q, not in %q", got, want)
		}
	}
	one := put("a@sha256:1", nil)
	has(one.dir(), one.configDir())
	two := put("a@sha256:2", nil)
	has(one.dir(), one.configDir(), two.dir(), two.configDir())
	three := put("a@sha256:3", nil)
	has(two.dir(), two.configDir(), three.dir(), three.configDir())
	set := put("a@sha256:3", func(o *Order) { o.Payload.Configs[0].Content += "# other\n" })
	has(three.dir(), three.configDir(), set.configDir())
	if err := Put(had, Entries{nil, nil, one.base(), nil}); err != nil {
		t.Fatal(err)
	}
	has()
}

// Two types have entries in one object, and both are content in the end: neither moves
// what the other has.
func TestTwoTypesComeToRest(t *testing.T) {
	var had map[string]any
	if err := json.Unmarshal([]byte(object), &had); err != nil {
		t.Fatal(err)
	}
	gvisor, kata := order(), order()
	kata.Payload.Type = "kata-containers"
	kata.Payload.Handlers = []payload.Handler{{Name: "kata-qemu", Containerd: &payload.ContainerdHandler{RuntimeType: "io.containerd.kata.v2", RuntimePath: "runsc"}}}
	turn := func() string {
		for _, o := range []*Order{gvisor, kata} {
			files, err := o.Files()
			if err != nil {
				t.Fatal(err)
			}
			plugins, err := o.Plugins()
			if err != nil {
				t.Fatal(err)
			}
			if err := Put(had, Entries{files, plugins, o.base(), []string{o.Payload.Handlers[0].Name}}); err != nil {
				t.Fatal(err)
			}
		}
		text, err := json.Marshal(had)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	turn()
	first := turn()
	entries := func() (out []string) {
		for _, e := range had["spec"].(map[string]any)["criConfig"].(map[string]any)["containerd"].(map[string]any)["plugins"].([]any) {
			at := e.(map[string]any)["path"].([]any)
			out = append(out, at[len(at)-1].(string))
		}
		return out
	}
	for range 3 {
		for _, o := range []*Order{gvisor, kata} {
			before, _ := json.Marshal(had)
			files, _ := o.Files()
			plugins, _ := o.Plugins()
			if err := Put(had, Entries{files, plugins, o.base(), []string{o.Payload.Handlers[0].Name}}); err != nil {
				t.Fatal(err)
			}
			if after, _ := json.Marshal(had); string(after) != string(before) {
				t.Fatalf("%s changes what is as it should be:\n%s\n%s", o.Payload.Type, before, after)
			}
		}
	}
	if turn() != first || !slices.Equal(entries(), []string{"other", "runsc", "kata-qemu"}) {
		t.Errorf("plugins: %v", entries())
	}
	// A handler that a release has no more goes, though nobody knows its name.
	gvisor.Payload.Handlers[0].Name = "runsc-next"
	turn()
	if got := entries(); !slices.Equal(got, []string{"other", "kata-qemu", "runsc-next"}) {
		t.Errorf("plugins: %v", got)
	}
	gvisor.Payload.Handlers[0].Containerd = &payload.ContainerdHandler{RuntimeType: "io.containerd.runsc.v1"}
	if _, err := gvisor.Plugins(); err == nil {
		t.Error("an entry is written that nobody could tell from others'")
	}
}
