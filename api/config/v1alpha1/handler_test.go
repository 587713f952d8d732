package v1alpha1

import (
	"reflect"
	"strings"
	"testing"
)

func TestEditHandler(t *testing.T) {
	text, err := EditHandler(nil, "mine", []string{"path=/usr/bin/runc", `args=["--debug"]`, "privileged_without_host_devices=true"})
	if err != nil {
		t.Fatal(err)
	}
	want := Handler{Path: "/usr/bin/runc", Args: []string{"--debug"}, PrivilegedWithoutHostDevices: true}
	got, err := ParseHandlers("f", text)
	if err != nil || !reflect.DeepEqual(got, map[string]Handler{"mine": want}) {
		t.Errorf("%+v %v\n%s", got, err, text)
	}
	if text, err = EditHandler(text, "mine", []string{"args=", "path=runc"}); err != nil {
		t.Fatal(err)
	}
	want.Path, want.Args = "runc", nil
	if got, err = ParseHandlers("f", text); err != nil || !reflect.DeepEqual(got["mine"], want) {
		t.Errorf("%+v %v\n%s", got, err, text)
	}
	for setting, want := range map[string]string{"path": "want KEY=VALUE", "=x": "want KEY=VALUE", "path.x=1": "path is no table"} {
		if _, err := EditHandler(text, "mine", []string{setting}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	for setting, want := range map[string]string{"pth=x": "path", "args=x": "list", "type=none": "none"} {
		text, err := EditHandler(nil, "mine", []string{setting})
		if err == nil {
			_, err = ParseHandlers("f.toml", text)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.toml") {
			t.Errorf("%s: %v", setting, err)
		}
	}
	if CheckHandlerName("Not_A_Label") == nil || CheckHandlerName("a-1") != nil {
		t.Error("names")
	}
}
