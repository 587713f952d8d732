package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.run/internal/cli/pick"
	"fairlead.run/internal/node/inventory"
)

// box is a pod as the runtime has it.
func box(namespace, name string) inventory.Pod {
	return inventory.Pod{ID: "id-of-" + namespace + "-" + name, Namespace: namespace, Name: name, UID: namespace + "-" + name}
}

// labelled is a pod of an app, which was restarted that often.
func labelled(p map[string]any, app string, restarts int) map[string]any {
	p["metadata"].(map[string]any)["labels"] = map[string]string{"app": app, "batch.kubernetes.io/job-name": app}
	p["status"].(map[string]any)["containerStatuses"] = []any{map[string]any{"name": "c", "restartCount": restarts}}
	return p
}

// TestTarget finds a pod by what a user calls it, or one of those of an object.
func TestTarget(t *testing.T) {
	app := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}}
	of := func(namespace, name string) map[string]any {
		return map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": app}
	}
	items := func(list ...any) map[string]any { return map[string]any{"items": list} }
	a, state, _, errs := upWith(t, map[string]any{
		"/objects/Deployment": items(of("default", "web"), of("lab", "web"), of("none", "alone")),
		"/objects/DaemonSet":  items(of("default", "web")),
		"/objects/Job":        items(map[string]any{"metadata": map[string]any{"namespace": "default", "name": "once"}}),
		"/objects/CronJob":    items(map[string]any{"metadata": map[string]any{"namespace": "default", "name": "daily"}}),
		"/pods": items(labelled(pod("default", "web-0", "Running"), "web", 0), labelled(pod("default", "web-1", "Running"), "web", 2),
			labelled(pod("lab", "web-0", "Running"), "web", 0), labelled(pod("default", "once-0", "Succeeded"), "once", 0), pod("default", "late", "Pending")),
	})
	if err := os.WriteFile(filepath.Join(state, "config.toml"), []byte(fmt.Sprintf("state = %q\n", state)), 0o600); err != nil {
		t.Fatal(err)
	}
	a.config = []string{state}
	there := []inventory.Pod{
		box("default", "web-0"), box("default", "web-1"), box("lab", "web-0"), box("default", "once-0"), box("job", "web"), box("default", "web"),
	}
	for text, tt := range map[string]struct{ logs, running, err, note string }{
		"once-0":                {"default-once-0", "default-once-0", "", ""},
		"pod/once-0":            {"default-once-0", "default-once-0", "", ""},
		"lab/web-0":             {"lab-web-0", "lab-web-0", "", ""},
		"po/lab/web-0":          {"lab-web-0", "lab-web-0", "", ""},
		"web-0 -n lab":          {"lab-web-0", "lab-web-0", "", ""},
		"id-of-lab":             {"lab-web-0", "lab-web-0", "", ""},
		"job/web":               {"job-web", "job-web", "", ""}, // a pod of a namespace that is called like a kind
		"deploy/web -n default": {"default-web-1", "default-web-0", "", "deployment/default/web has 2 pods; this is pod web-"},
		"Deployment/lab/web":    {"lab-web-0", "lab-web-0", "", ""},
		"ds/web":                {"default-web-1", "default-web-0", "", "daemonset/default/web has 2 pods"},
		"job/once":              {"default-once-0", "default-once-0", "", ""},
		"deploy/web":            {"", "", "may be any of deployment/default/web, deployment/lab/web; say which", ""},
		"deploy/wep":            {"", "", "fairlead up keeps no deployment wep", ""},
		"deploy/alone":          {"", "", "deployment/none/alone has no pods at present", ""},
		"cronjob/daily":         {"", "", "cronjob/default/daily: it has no pods of its own; deployments, replicasets", ""},
		"shop/web":              {"", "", `there is no pod "shop/web"`, ""},
		"web-0":                 {"", "", "may be any of these pods", ""},
		"web-0 -n shop":         {"", "", `there is no pod "web-0", nor any other`, ""},
		"deploy/web -n shop":    {"", "", "fairlead up keeps no deployment web in namespace shop", ""},
		"pod/web -n job":        {"job-web", "job-web", "", ""},
	} {
		ref, namespace, _ := strings.Cut(text, " -n ")
		for _, rule := range []struct {
			better pick.Rule
			want   string
		}{{pick.Logs, tt.logs}, {pick.Running, tt.running}} {
			errs.Reset()
			p, err := a.podAmong(t.Context(), slices.Clone(there), target{namespace, ref}, rule.better)
			switch {
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%s: %v, %v", text, p, err)
			case tt.err == "" && (err != nil || p.UID != rule.want):
				t.Errorf("%s: %+v, %v, want %s", text, p, err, rule.want)
			case !strings.Contains(errs.String(), tt.note) || tt.note == "" && errs.Len() > 0:
				t.Errorf("%s: %s", text, errs)
			}
		}
	}
}

// TestMatching takes the latest sandbox of each pod whose labels fit.
func TestMatching(t *testing.T) {
	wanted, err := labels.Parse("app=web,tier!=back")
	if err != nil {
		t.Fatal(err)
	}
	of := func(id, namespace, uid, tier string, age time.Duration) inventory.Pod {
		return inventory.Pod{ID: id, Namespace: namespace, UID: uid, Labels: map[string]string{"app": "web", "tier": tier}, CreatedAt: time.Unix(1000, 0).Add(-age)}
	}
	pods := []inventory.Pod{
		of("1", "default", "a", "front", time.Hour), of("2", "default", "a", "front", time.Minute), of("3", "default", "a", "front", 2*time.Hour),
		of("4", "default", "b", "back", 0), of("5", "lab", "c", "front", 0),
		{ID: "6", Namespace: "default", UID: "d"},
	}
	for namespace, want := range map[string][]string{"": {"2", "5"}, "default": {"2"}, "lab": {"5"}, "shop": nil} {
		var got []string
		for _, p := range matching(pods, namespace, wanted) {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", namespace, got, want)
		}
	}
}
