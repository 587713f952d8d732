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
