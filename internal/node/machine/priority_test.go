package machine

import (
	"strings"
	"testing"

	"fairlead.run/internal/node/priority"
)

const gold = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: gold}
value: 1000
`

// TestPriorityClass has a pod wait for its class, run with its priority, and go on when the
// class goes or changes.
func TestPriorityClass(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", "  priorityClassName: gold\n"))
	p.boot()
	p.await("the refusal", func() bool { return p.pods()["a"].Status.Reason == "PriorityRefused" })
	if message := p.pods()["a"].Status.Message; !strings.Contains(message, "there is no PriorityClass gold; add it to the manifests") || !p.has("there is no PriorityClass gold") {
		t.Errorf("%s", message)
	}
	p.write("gold.yaml", gold)
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	p.await("its priority", func() bool { now := p.pods()["a"]; return priority.Of(&now) == 1000 })
	pod := p.pods()["a"]
	if pod.Spec.PreemptionPolicy == nil || p.objects("PriorityClass")["gold"]["value"] != 1000.0 {
		t.Errorf("%+v", pod.Spec)
	}
	p.write("gold.yaml", strings.Replace(gold, "1000", "7", 1))
	p.await("another value", func() bool { now := p.pods()["a"]; return priority.Of(&now) == 7 })
	p.remove("gold.yaml")
	p.await("the complaint", func() bool { return p.has("there is no PriorityClass gold") })
	if now := p.pods()["a"]; now.UID != pod.UID || now.Status.Phase != "Running" || len(now.Status.ContainerStatuses) != 1 || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("%+v", now.Status)
	}
}
