package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cli/show"
	"fairlead.run/internal/node/machine"
)

// upWith is an app whose fairlead up answers with that, by path.
func upWith(t *testing.T, answers map[string]any) (a *app, state string, out, errs *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	})}}
	s.Start()
	t.Cleanup(s.Close)
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return &app{in: strings.NewReader(""), out: out, err: errs}, dir, out, errs
}

func pod(namespace, name, phase string) map[string]any {
	return map[string]any{
		"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"namespace": namespace, "name": name, "uid": namespace + "-" + name},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}, "status": map[string]any{"phase": phase},
	}
}

func TestGet(t *testing.T) {
	a, state, out, errs := upWith(t, map[string]any{
		"/objects/Pod":       map[string]any{"items": []any{pod("default", "web", "Running"), pod("lab", "web", "Pending"), pod("lab", "db", "Pending")}},
		"/objects/ConfigMap": map[string]any{"items": []any{map[string]any{"metadata": map[string]any{"namespace": "default", "name": "conf"}, "data": map[string]any{"k": "v"}}}},
		"/why":               map[string]string{"lab-db": "container c: its disk is full"},
	})
	for args, want := range map[string]struct {
		code     int
		out, err string
	}{
		"pods":                     {0, "lab/db", "pod lab/db: container c: its disk is full"},
		"pods web":                 {0, "lab/web", ""},
		"pods lab/web -o name":     {0, "pod/lab/web\n", ""},
		"po web -n lab -o name":    {0, "pod/lab/web\n", ""},
		"pod/web cm/conf -o name":  {0, "pod/web\npod/lab/web\nconfigmap/conf\n", ""},
		"cm conf -o yaml":          {0, "data:\n  k: v\n", ""},
		"pods -o json":             {0, `"kind": "List"`, ""},
		"pods web dc -n default":   {1, "web", "fairlead up keeps no pod dc in namespace default"},
		"cm cond":                  {1, "", "did you mean conf?"},
		"widgets":                  {2, "", "there are pods (po), nodes (no)"},
		"pods -A -o name":          {0, "pod/lab/db\n", ""},
		"po web -A -n lab -o name": {0, "pod/web\npod/lab/web\n", ""},
		"cm -l a=b":                {0, "", ""},
		"cm conf -l a=b":           {2, "", "-l a=b and a name choose both"},
		"pods -l a=(":              {2, "", "is no selector"},
		"pods -w -o yaml":          {2, "", "-w shows rows"},
		"pod/web cm/conf -w":       {2, "", "-w goes with one kind"},
		"pods -o table,wide":       {2, "", "is not one of table, wide, name, json, yaml"},
		"po,cm -o name":            {0, "pod/lab/db\nconfigmap/conf\n", ""},
		"po,cm web -o name":        {1, "pod/web\npod/lab/web\n", "fairlead up keeps no configmap web"},
		"po,widgets":               {2, "", "\"widgets\" is no kind of object"},
		"cm,po":                    {0, "configmap/conf ", "pod lab/db: "},

		"pods -o jsonpath={.items[*].metadata.name}": {0, "web web db", ""},
		"cm conf -o jsonpath={.data.k}":              {0, "v", ""},
		"cm conf -o jsonpath=data.k":                 {0, "v", ""},
		"cm conf -o jsonpath={.data.none}":           {0, "", ""},
		"cm conf -o jsonpath={.data.k":               {2, "", "-o jsonpath={.data.k is no template"},
		"cm conf -o jsonpath":                        {2, "", "-o jsonpath has no template"},
		"cm conf -o jsonpath={.data.k[3]}":           {1, "", "-o jsonpath={.data.k[3]}: "},
		"pod/":                                       {2, "", "is no KIND/NAME"},
		"":                                           {2, "", "KIND is missing"},
	} {
		out.Reset()
		errs.Reset()
		code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "get"}, strings.Fields(args)...))
		if code != want.code || !strings.Contains(out.String(), want.out) || !strings.Contains(errs.String(), want.err) || want.err == "" && errs.Len() > 0 {
			t.Errorf("get %s: %d\n%s%s", args, code, out, errs)
		}
	}
}

// TestSelector takes objects by their labels.
func TestSelector(t *testing.T) {
	front := pod("default", "web", "Running")
	front["metadata"].(map[string]any)["labels"] = map[string]string{"tier": "front"}
	a, state, out, errs := upWith(t, map[string]any{
		"/objects/Pod": map[string]any{"items": []any{front, pod("lab", "db", "Running")}},
	})
	for selector, want := range map[string]string{"tier=front": "pod/web\n", "tier!=front": "pod/lab/db\n", "tier=back": ""} {
		out.Reset()
		if code := a.run(context.Background(), []string{"--config", state, "--state", state, "get", "pods", "-o", "name", "-l", selector}); code != 0 || out.String() != want {
			t.Errorf("-l %s: %d %s%s", selector, code, out, errs)
		}
	}
}

// TestWatch shows objects, and again those that change or go.
func TestWatch(t *testing.T) {
	var out bytes.Buffer
	k, err := show.Find("pods")
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string, phase corev1.PodPhase) metav1.Object {
		p := &corev1.Pod{}
		p.Name, p.Namespace, p.Status.Phase = name, "default", phase
		return p
	}
	w := watcher{kind: k, to: &out, seen: map[string]metav1.Object{}, texts: map[string]string{}}
	for _, step := range []struct {
		list []metav1.Object
		want []string // of each line its first word and a word in it
	}{
		{nil, nil},
		{[]metav1.Object{of("a", "Pending"), of("b", "Running")}, []string{"NAME STATUS", "a Pending", "b Running"}},
		{[]metav1.Object{of("a", "Pending"), of("b", "Running")}, nil},
		{[]metav1.Object{of("a", "Running"), of("b", "Running")}, []string{"a Running"}},
		{[]metav1.Object{of("a", "Running")}, []string{"b Running"}},
		{[]metav1.Object{of("a", "Running"), of("b", "Pending")}, []string{"b Pending"}},
	} {
		out.Reset()
		w.show(step.list, time.Now())
		lines := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
		if len(lines) != len(step.want) {
			t.Fatalf("it has %q, want %q", lines, step.want)
		}
		for i, want := range step.want {
			first, word, _ := strings.Cut(want, " ")
			if !strings.HasPrefix(lines[i], first+" ") || !strings.Contains(lines[i], word) {
				t.Errorf("%q, want %q", lines[i], want)
			}
		}
	}
}

// TestWait waits for what is asked for, and no longer than it may.
func TestWait(t *testing.T) {
	job := map[string]any{"metadata": map[string]any{"namespace": "default", "name": "sum"}, "status": map[string]any{
		"conditions": []any{map[string]any{"type": "Complete", "status": "True"}, map[string]any{"type": "Suspended", "status": "False", "reason": "Because"}},
	}}
	a, state, _, errs := upWith(t, map[string]any{
		"/objects/Pod":                       map[string]any{"items": []any{labelled(pod("lab", "db", "Running"), "db", 0)}},
		"/objects/Job":                       map[string]any{"items": []any{job}},
		"/present":                           map[string]string{"1": "lab/db", "2": "lab/begins"},
		"/objects/Deployment/web/readiness":  map[string]any{},
		"/objects/Deployment/slow/readiness": map[string]any{"missing": "pod default/slow-0 is not ready"},
		"/objects/Pod/db/readiness":          map[string]any{"missing": "pod lab/db has failed", "failed": true},
	})
	for args, want := range map[string]struct {
		code int
		err  string
	}{
		"deploy/web":                                          {0, ""},
		"deploy web":                                          {0, ""},
		"deploy/web --for condition=Ready":                    {0, ""},
		"deploy/web deploy/slow --timeout 10ms":               {1, "after 10ms: pod default/slow-0 is not ready"},
		"pod/lab/db --timeout 0s":                             {1, "pod lab/db has failed"},
		"pod/lab/db --for delete --timeout 10ms":              {1, "pod lab/db is still there"},
		"pod/lab/begins --for delete --timeout 10ms":          {1, "pod lab/begins is still there"},
		"pod/gone --for delete":                               {0, ""},
		"job/sum --for delete --timeout 10ms":                 {1, "job sum is still there"},
		"job sum --for condition=complete":                    {0, ""},
		"job sum --for condition=Suspended=False":             {0, ""},
		"job/sum --for condition=Suspended --timeout 1ms":     {1, "job sum has condition Suspended=False: Because"},
		"job/sum --for condition=Other --timeout 1ms":         {1, "job sum has no condition Other"},
		"job/none --for condition=Complete":                   {1, "fairlead up keeps no job none"},
		"job/sum --for something":                             {2, "is not one of ready, delete"},
		"jobs":                                                {2, "say which jobs"},
		"deploy/slow --for condition=Available --timeout 1ms": {1, "pod default/slow-0 is not ready"},
		"deploy/web --for condition=Available":                {0, ""},
		"pods -l app=db -n lab":                               {1, "pod lab/db has failed"},
		"pods --all -n lab":                                   {1, "pod lab/db has failed"},
		"pods --all":                                          {1, "keeps none of these; see: fairlead get pods -A"},
		"pods -l app=other -n lab --for delete":               {0, ""},
		"pods -l app=other --all":                             {2, "-l and --all choose both"},
		"pod db --all":                                        {2, "--all and a name choose both"},
		"pod db -l app=db":                                    {2, "and a name choose both"},
	} {
		errs.Reset()
		code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "wait"}, strings.Fields(args)...))
		if code != want.code || !strings.Contains(errs.String(), want.err) || want.err == "" && errs.Len() > 0 {
			t.Errorf("wait %s: %d %s", args, code, errs)
		}
	}
}

// TestDeleteWaits takes what get prints, and waits for the pods that end by it.
func TestDeleteWaits(t *testing.T) {
	a, state, out, errs := upWith(t, map[string]any{
		"/objects/Deployment":     map[string]any{"items": []any{map[string]any{"metadata": map[string]any{"namespace": "lab", "name": "web", "labels": map[string]any{"app": "web"}}}}},
		"/objects/Deployment/web": map[string]any{"kind": "Deployment", "namespace": "lab", "name": "web", "change": "deleted", "pods": []string{"lab-db"}},
		"/objects/Pod/two":        map[string]any{"kind": "Pod", "namespace": "default", "name": "two", "change": "deleted", "pods": []string{"lab-db"}, "elsewhere": "mine.yaml:1"},
		"/pods":                   map[string]any{"items": []any{}}, // it begins, and is not shown yet
		"/present":                map[string]string{"lab-db": "lab/db", "another": "lab/another"},
	})
	for args, want := range map[string]struct {
		code     int
		out, err string
	}{
		"deploy/lab/web --timeout 10ms":  {1, "deployment/lab/web deleted", "after 10ms: pod lab/db has not ended yet"},
		"deploy web -n lab --wait=false": {0, "deployment/lab/web deleted", ""},
		"deploy lab/web --timeout 10ms":  {1, "deployment/lab/web deleted", "pod lab/db has not ended yet"},
		"pod/two":                        {1, "pod/two deleted", "pod two stays, as it is also written at mine.yaml:1; delete it there"},
		"pods":                           {2, "", "say which pods"},
		"pod gone":                       {1, "", "404 page not found"},
		"pod gone --ignore-not-found":    {0, "", ""},
		"deploy -l app=none -n lab --ignore-not-found": {0, "", ""},
		"-f none.yaml -l app=web":                      {2, "", "-f has objects"},
		"deploy -l app=web -n lab --wait=false":        {0, "deployment/lab/web deleted", ""},
		"deploy -l app=none -n lab":                    {1, "", "keeps none of these"},
		"":                                             {2, "", "give a kind and names"},
	} {
		out.Reset()
		errs.Reset()
		code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "delete"}, strings.Fields(args)...))
		if code != want.code || !strings.Contains(out.String(), want.out) || !strings.Contains(errs.String(), want.err) || want.err == "" && errs.Len() > 0 {
			t.Errorf("delete %s: %d\n%s%s", args, code, out, errs)
		}
	}
}

// TestRestart names what is restarted, and waits for its pods if asked to.
func TestRestart(t *testing.T) {
	a, state, out, errs := upWith(t, map[string]any{
		"/objects/Deployment/web/restart":   map[string]any{"kind": "Deployment", "namespace": "lab", "name": "web", "change": "restarted"},
		"/objects/Deployment/web/readiness": map[string]any{"missing": "a pod is not there yet"},
	})
	for args, want := range map[string]struct {
		code     int
		out, err string
	}{
		"deploy lab/web": {0, "deployment/lab/web restarted\n", ""},
		"deploy/web -n lab --wait --timeout 10ms": {1, "deployment/lab/web restarted\n", "after 10ms: a pod is not there yet"},
		"deploy": {2, "", "say which deployments"},
	} {
		out.Reset()
		errs.Reset()
		code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "restart"}, strings.Fields(args)...))
		if code != want.code || out.String() != want.out || !strings.Contains(errs.String(), want.err) || want.err == "" && errs.Len() > 0 {
			t.Errorf("restart %s: %d\n%s%s", args, code, out, errs)
		}
	}
}

// TestEventsFor shows those about an object, or of a namespace.
func TestEventsFor(t *testing.T) {
	a, state, out, errs := upWith(t, map[string]any{
		"/events": map[string]any{"involvedObject": map[string]any{"kind": "Job", "namespace": "lab", "name": "sum"}, "type": "Normal", "reason": "Completed"},
	})
	for args, want := range map[string]string{
		"": "job lab/sum  Completed", "--for job/sum": "Completed", "--for job/lab/sum": "Completed", "-n lab": "Completed", "-A": "Completed",
		"--for job/other": "", "--for pod/sum": "", "-n default": "", "--for job/sum -n default": "",
		"--types normal": "Completed", "--types Warning": "", "--types Warning,Normal -n lab": "Completed", "-w --for job/other": "",
	} {
		out.Reset()
		if code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "events"}, strings.Fields(args)...)); code != 0 || !strings.Contains(out.String(), want) || want == "" && out.Len() > 0 {
			t.Errorf("events %s: %d %s%s", args, code, out, errs)
		}
	}
}

func TestDescribe(t *testing.T) {
	event := map[string]any{"involvedObject": map[string]any{"kind": "Pod", "namespace": "lab", "name": "db", "uid": "lab-db"}, "type": "Warning", "reason": "BackOff", "message": "again \x1b[2J"}
	p := pod("lab", "db", "Pending")
	p["spec"].(map[string]any)["runtimeClassName"] = "native"
	a, state, out, errs := upWith(t, map[string]any{
		"/objects/Pod":          map[string]any{"items": []any{p, pod("default", "web", "Running")}},
		"/objects/RuntimeClass": map[string]any{"items": []any{map[string]any{"metadata": map[string]any{"name": "native"}, "handler": "runc"}}},
		"/why":                  map[string]string{"lab-db": "its disk is full"},
		"/events":               event,
	})
	if code := a.run(context.Background(), []string{"--config", state, "--state", state, "describe", "pod/db"}); code != 0 {
		t.Errorf("%d %s", code, errs)
	}
	for _, want := range []string{"Name:           db\n", "its disk is full", "Handler:        runc", "BackOff  again \\x1b[2J"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out.String(), "web") {
		t.Errorf("it has another pod:\n%s", out)
	}
}

func TestTop(t *testing.T) {
	use := func(cpu, memory int) map[string]any {
		return map[string]any{"cpu": map[string]any{"usageNanoCores": cpu}, "memory": map[string]any{"workingSetBytes": memory, "availableBytes": 3 * memory}}
	}
	of := func(name string, m map[string]any) map[string]any {
		m["name"], m["nodeName"] = name, name
		return m
	}
	busy := of("busy", use(1_250_000_000, 64<<20))
	busy["podRef"] = map[string]any{"name": "busy", "namespace": "lab"}
	busy["containers"] = []any{of("main", use(1_200_000_000, 60<<20)), of("side", map[string]any{})}
	a, state, out, errs := upWith(t, map[string]any{
		"/usage":        map[string]any{"node": of("node", use(500_000_000, 1<<30)), "pods": []any{busy}},
		"/objects/Node": map[string]any{"items": []any{map[string]any{"metadata": map[string]any{"name": "node"}, "status": map[string]any{"allocatable": map[string]any{"cpu": "2", "memory": "4Gi"}}}}},
	})
	for args, want := range map[string]string{
		"pods":                  "NAME       CPU(cores)   MEMORY(bytes)\nlab/busy   1250m        64Mi\n",
		"pod busy --containers": "POD        NAME   CPU(cores)   MEMORY(bytes)\nlab/busy   main   1200m        60Mi\nlab/busy   side   -            -\n",
		"node":                  "NAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\nnode   500m         25%      1024Mi          25%\n",
		"pods -n default":       "NAME   CPU(cores)   MEMORY(bytes)\n",
	} {
		out.Reset()
		if code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "top"}, strings.Fields(args)...)); code != 0 || out.String() != want {
			t.Errorf("top %s: %d %s\n%s", args, code, errs, out)
		}
	}
	for args, want := range map[string]int{"pods nothing": 1, "deployments": 2} {
		if code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "top"}, strings.Fields(args)...)); code != want {
			t.Errorf("top %s: %d", args, code)
		}
	}
}

// TestProblemRows has each fault of a file in a line of its own.
func TestProblemRows(t *testing.T) {
	got := problemRows([]machine.Problem{{Origin: "a.yaml", Error: "a.yaml:1: wrong\na.yaml: none of its pods run"}, {Origin: "b.yaml", Error: "empty"}})
	want := [][]string{{"ORIGIN", "PROBLEM"}, {"a.yaml", "a.yaml:1: wrong"}, {"a.yaml", "a.yaml: none of its pods run"}, {"b.yaml", "empty"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}
