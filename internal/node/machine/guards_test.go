package machine

import (
	"net/http"
	"strings"
	"testing"
)

const beside = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: lab}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: front, labels: {app: web}}
spec: {rules: [{host: example.com}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "lab:reader", namespace: lab}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, names: {kind: Widget, plural: widgets}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
`

// TestLeftOut applies objects that nothing acts on: they are kept to be shown, and deleted,
// and what would have refused something is told by an event.
func TestLeftOut(t *testing.T) {
	p := newPlace(t)
	p.boot()
	code, answer := p.ask(http.MethodPost, "/objects", beside)
	if code != http.StatusOK || strings.Count(answer, `"change":"created"`) != 4 || !strings.Contains(answer, `"kind":"Widget","namespace":"default","name":"w","change":"left out"`) {
		t.Fatalf("%d %s", code, answer)
	}
	front := p.objects("Ingress")["front"]
	if front["apiVersion"] != "networking.k8s.io/v1" || front["spec"] == nil {
		t.Errorf("%v", front)
	}
	if role := p.objects("ClusterRole")["lab:reader"]; role == nil || role["metadata"].(map[string]any)["namespace"] != nil {
		t.Errorf("%v", role)
	}
	_, events := p.ask(http.MethodGet, "/events", "")
	if strings.Count(events, "NotEnforced") != 1 || !strings.Contains(events, `"kind":"NetworkPolicy","namespace":"lab","name":"closed"`) || !strings.Contains(events, "traffic that it would refuse is NOT refused") {
		t.Errorf("%s", events)
	}
	for _, path := range []string{"ClusterRole/lab:reader", "Ingress/front?namespace=default", "NetworkPolicy/closed?namespace=lab"} {
		if code, answer := p.ask(http.MethodDelete, "/objects/"+path, ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	p.await("their end", func() bool { return len(p.objects("Ingress"))+len(p.objects("ClusterRole")) == 0 })
	if code, answer := p.ask(http.MethodPost, "/objects", "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\n"); code != http.StatusBadRequest || !strings.Contains(answer, "Gadget of example.com/v1 is not something") {
		t.Errorf("%d %s", code, answer)
	}
}
