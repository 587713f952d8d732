package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
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
		"pods":                    {0, "lab/db", "pod lab/db: container c: its disk is full"},
		"pods web":                {0, "lab/web", ""},
		"pods lab/web -o name":    {0, "pod/lab/web\n", ""},
		"po web -n lab -o name":   {0, "pod/lab/web\n", ""},
		"pod/web cm/conf -o name": {0, "pod/web\npod/lab/web\nconfigmap/conf\n", ""},
		"cm conf -o yaml":         {0, "data:\n  k: v\n", ""},
		"pods -o json":            {0, `"kind": "List"`, ""},
		"pods web dc -n default":  {1, "web", "fairlead up keeps no pod dc in namespace default"},
		"cm cond":                 {1, "", "did you mean conf?"},
		"ingresses":               {2, "", "there are pods (po), nodes (no)"},
		"pods -o table,wide":      {2, "", "is not one of table, wide, name, json, yaml"},
		"pod/":                    {2, "", "is no KIND/NAME"},
		"":                        {2, "", "KIND is missing"},
	} {
		out.Reset()
		errs.Reset()
		code := a.run(context.Background(), append([]string{"--config", state, "--state", state, "get"}, strings.Fields(args)...))
		if code != want.code || !strings.Contains(out.String(), want.out) || !strings.Contains(errs.String(), want.err) || want.err == "" && errs.Len() > 0 {
			t.Errorf("get %s: %d\n%s%s", args, code, out, errs)
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
