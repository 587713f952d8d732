package access

import (
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// subresources are what paths stand for, the first that fits. A path fits with
// what is below it. Any other path is nodes/proxy, which is all but root on the
// node.
var subresources = []struct {
	path string
	// names in the order in which they are asked for: any of them will do.
	names []string
}{
	{"/stats", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/logs", []string{"log"}},
	{"/checkpoint", []string{"checkpoint"}},
	{"/pods", []string{"pods", proxy}},
	{"/runningpods", []string{"pods", proxy}},
	{"/healthz", []string{"healthz", proxy}},
	{"/configz", []string{"configz", proxy}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
}

const proxy = "proxy"

// acts are the paths below which something is done in a container. Their verb
// is create whatever the method is: a WebSocket is opened by GET, and whoever
// may only read must not run commands by it.
var acts = []string{"/exec", "/attach", "/portForward", "/run"}

var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// attributes are what a request asks to be allowed. One of the list is enough.
// The path must be clean. Without a verb, nothing can be allowed.
func attributes(r *http.Request, node string) []authorizationv1.ResourceAttributes {
	verb := verbs[r.Method]
	if verb == "" {
		return nil
	}
	for _, act := range acts {
		if below(r.URL.Path, act) {
			verb = "create"
		}
	}
	names := []string{proxy}
	for _, s := range subresources {
		if below(r.URL.Path, s.path) {
			names = s.names
			break
		}
	}
	out := make([]authorizationv1.ResourceAttributes, 0, len(names))
	for _, name := range names {
		out = append(out, authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: name, Name: node})
	}
	return out
}

func below(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '/')
}
