package run

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/failpoint"
)

// settings are the ConfigMaps that fairlead up has, by name, as far as the test has made them.
func (m *machine) settings() map[string]string {
	m.t.Helper()
	var list corev1.ConfigMapList
	if err := json.Unmarshal([]byte(m.want(0, "get", "configmaps", "-o", "json").out), &list); err != nil {
		m.t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range list.Items {
		all[c.Name] = c.Data["text"]
	}
	return all
}

// TestUpIsKilledDuringApply ends fairlead up at each step of an apply of several objects: at
// its next start all of them are as before, or as they were to be, and the same apply works.
func TestUpIsKilledDuringApply(t *testing.T) {
	m := newMachine(t)
	manifests := func(text string, names ...string) string {
		t.Helper()
		all := ""
		for _, name := range names {
			all += "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {text: " + text + "}\n---\n"
		}
		return m.write(text+".yaml", all)
	}
	before := map[string]string{"first": "old", "second": "old"}
	after := map[string]string{"first": "new", "second": "new", "third": "new"}
	old, changed := manifests("old", slices.Sorted(maps.Keys(before))...), manifests("new", slices.Sorted(maps.Keys(after))...)
	for place, want := range map[string]map[string]string{
		"changeset.begun": before, "changeset.half": before, "changeset.performed": before, "changeset.over": after,
	} {
		t.Setenv(failpoint.Env, place+"=kill@2") // the first is that of the old ones
		j := m.up()
		if err := os.Unsetenv(failpoint.Env); err != nil {
			t.Fatal(err)
		}
		m.want(0, "apply", "-f", old)
		if r := m.run("", "apply", "-f", changed); r.code == 0 {
			t.Errorf("%s: fairlead up is gone, and apply says that it was done: %s", place, r.out)
		}
		j.ends(-1)
		j = m.up()
		if got := m.settings(); !maps.Equal(got, want) {
			t.Errorf("%s: there are %v, want %v", place, got, want)
		}
		m.want(0, "apply", "-f", changed)
		if got := m.settings(); !maps.Equal(got, after) {
			t.Errorf("%s: after another apply there are %v", place, got)
		}
		m.want(0, "delete", "-f", changed)
		entries, err := os.ReadDir(m.dir + "/manifests")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".change") {
				t.Errorf("%s: %s is left", place, e.Name())
			}
		}
		j.signal(syscall.SIGTERM)
		j.ends(0)
	}
}
