package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
)

// The operator beside the webhook: what people write is refused by the API server with
// the field that is wrong, and taken with everything else of it as it was once that is
// mended; what the operator writes goes through.
func TestOperatorReviewed(t *testing.T) {
	needOperator(t)
	c := newCrew(t)
	c.hook = serveWebhook(t)
	c.reviewShoots(t)
	c.start(t, accountKubeconfig(t, operatorNamespace, "fairlead-operator"))
	c.born(t, "reviewed", 2)
	c.standIn(t)
	c.must(t, http.MethodPost, poolPath, aTaintedPool("reviewed", "gvisor"), nil)
	c.ready(t, "reviewed")
	t.Run("pools", c.reviewedPools)
	t.Run("runtimes", c.reviewedRuntimes)
	t.Run("shoots", c.reviewedShoots)
	t.Run("foreign class", c.foreignClass)
	t.Run("end", c.reviewedEnd)
	c.noPanics(t)
}

// reviewShoots has API servers ask about Shoots, too, of which there are none but in a
// garden cluster.
func (c *crew) reviewShoots(t *testing.T) {
	t.Helper()
	gardenKind(t, "Shoot", "Namespaced")
	text, err := os.ReadFile("../../deploy/garden/30-configurations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, shoots, ok := strings.Cut(string(text), "\nwebhooks:\n")
	if !ok {
		t.Fatalf("no webhooks in:\n%s", text)
	}
	// The last of the others is a list of the same kind.
	apply(t, configurations(t)+servicePart.ReplaceAllString(shoots, "url: https://"+webhookReviews+"$1"))
	c.told(t)
}

// refusal is a change that is refused because of fields, and what is to be changed in it
// so that it is taken.
type refusal struct {
	wrong, mended object
	fields        string // all of them, with spaces between
	says          string
}

// refusals tries changes. Nothing of them is kept.
func (c *crew) refusals(t *testing.T, all map[string]refusal, send func(changes ...object) answer) {
	t.Helper()
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			var got answer
			eventually(t, func() error {
				// An API server that waits too long for the webhook goes on without it.
				if got = send(r.wrong); got.code != http.StatusUnprocessableEntity {
					return fmt.Errorf("it is not refused: %s", got)
				}
				return nil
			})
			if fields := got.fields(); fields != r.fields || !strings.Contains(got.message(), r.says) {
				t.Errorf("%s, about %q and not %q, and it has to say %q", got, fields, r.fields, r.says)
			}
			eventually(t, func() error {
				if got := send(r.wrong, r.mended); !got.ok() {
					return fmt.Errorf("after it was mended: %s", got)
				}
				return nil
			})
		})
	}
}

// fields are those that a refusal is about.
func (a answer) fields() string {
	var status metav1.Status
	if a.ok() || json.Unmarshal(a.body, &status) != nil || status.Details == nil {
		return ""
	}
	var out []string
	for _, cause := range status.Details.Causes {
		out = append(out, cause.Field)
	}
	return strings.Join(out, " ")
}

// with is an object with changes merged into it, in which nil takes a field away.
func with(o object, changes ...object) object {
	out := maps.Clone(o)
	for _, change := range changes {
		for key, value := range change {
			more, isObject := value.(object)
			had, wasObject := out[key].(object)
			switch {
			case value == nil:
				delete(out, key)
			case isObject && wasObject:
				out[key] = with(had, more)
			default:
				out[key] = value
			}
		}
	}
	return out
}

const dry = "?dryRun=All"

// runtimesOf are those of a pool or a worker group.
func runtimesOf(all ...object) object { return object{"cri": object{"containerRuntimes": all}} }

func configured(typ string, config object) object {
	return runtimesOf(object{"type": typ, "providerConfig": config})
}

func (c *crew) reviewedPools(t *testing.T) {
	const runtimes = "spec.cri.containerRuntimes"
	plain := runtimesOf(object{"type": "gvisor"})
	with32 := configured("gvisor", object{"overhead": object{"memory": "32Mi"}})
	c.refusals(t, map[string]refusal{
		"selector":       {object{"nodeSelector": object{"group": "no good"}}, object{"nodeSelector": object{"group": "good"}}, "spec.nodeSelector[group]", "a valid label must be"},
		"same selector":  {object{"nodeSelector": object{"group": "reviewed"}}, object{"nodeSelector": object{"also": "another"}}, "spec.nodeSelector", "WorkerPool reviewed has the same one"},
		"type":           {runtimesOf(object{"type": "firecracker"}), plain, runtimes + "[0].type", `supported values: "gvisor", "kata-containers (kata)"`},
		"twice":          {runtimesOf(object{"type": "kata-containers"}, object{"type": "kata"}), plain, runtimes + "[1].type", "is the same runtime as " + runtimes + "[0].type"},
		"image":          {object{"machineImage": object{"name": "bottlerocket"}}, object{"machineImage": object{"name": "flatcar"}}, "spec.machineImage.name", "choose one of coreos, debian, flatcar"},
		"CRI":            {object{"machineImage": object{"name": "flatcar"}, "cri": object{"name": "crio"}}, object{"cri": object{"name": "containerd"}}, "spec.cri.name " + runtimes + "[0].type", "flatcar comes with containerd only"},
		"Kubernetes":     {object{"kubernetesVersion": "1.13.12"}, object{"kubernetesVersion": "1.14.0"}, "spec.kubernetesVersion", "upgrade, or take containerRuntimes off"},
		"machine":        {with(runtimesOf(object{"type": "kata"}), object{"provider": "aws", "machineType": "m5.large"}), object{"machineType": "m5.metal"}, "spec.machineType", "choose one such as m5.metal"},
		"architecture":   {object{"architecture": "arm64"}, object{"architecture": "amd64"}, "spec.architecture", "has programs for amd64 only"},
		"restart":        {object{"restart": object{"method": "sighup"}}, object{"restart": object{"method": "systemd"}}, "spec.restart.method", "set auto or systemd"},
		"taint":          {object{"startupTaint": object{"key": "no good"}}, object{"startupTaint": object{"key": "example.com/good"}}, "spec.startupTaint.key", "name part must consist of"},
		"config":         {configured("gvisor", object{"flags": object{}}), configured("gvisor", object{"configFlags": object{}}), runtimes + "[0].providerConfig", "the fields are apiVersion, kind, configFlags, overhead"},
		"config version": {configured("kata", object{"apiVersion": "kata.example/v1", "kind": "Other"}), plain, runtimes + "[0].providerConfig.apiVersion " + runtimes + "[0].providerConfig.kind", `supported values: "kata.fairlead.run/v1alpha1"`},
		"flag":           {configured("gvisor", object{"configFlags": object{"root": "/"}}), plain, runtimes + "[0].providerConfig.configFlags[root]", `"platform"`},
		"overhead":       {configured("gvisor", object{"overhead": object{"memory": "1e9"}}), with32, runtimes + "[0].providerConfig.overhead[memory]", "give an amount as in 250m or 160Mi"},
		"other overhead": {configured("gvisor", object{"overhead": object{"memory": "64Mi"}}), with32, runtimes + "[0].providerConfig", "the older WorkerPool reviewed gives it, memory=32Mi"},
	}, func(changes ...object) answer {
		p := aPool("another", "gvisor")
		p["spec"] = with(p["spec"].(object), changes...)
		return c.ask(t, http.MethodPost, poolPath+dry, p)
	})
	c.refusals(t, map[string]refusal{
		"another CRI":   {object{"cri": object{"name": "crio"}}, object{"cri": object{"name": "containerd"}}, "spec.cri.name", "make another pool"},
		"another image": {object{"machineImage": object{"name": "flatcar"}}, object{"machineImage": object{"name": "debian"}}, "spec.machineImage.name", "the nodes of this pool have them in /usr/bin"},
	}, c.patch(t, poolPath+"/reviewed"))
}

// patch changes the specification of an object.
func (c *crew) patch(t *testing.T, path string) func(changes ...object) answer {
	return func(changes ...object) answer {
		return c.ask(t, http.MethodPatch, path+dry, object{"spec": with(object{}, changes...)})
	}
}

func (c *crew) reviewedRuntimes(t *testing.T) {
	base := object{"type": "gvisor", "binaryPath": "/opt/bin", "workerPool": object{"name": "by-hand", "selector": object{"matchLabels": object{"by": "hand"}}}}
	pool := func(name string) object { return object{"workerPool": object{"name": name}} }
	chosen := func(labels any) object {
		return object{"workerPool": object{"selector": object{"matchLabels": labels}}}
	}
	c.refusals(t, map[string]refusal{
		"no type":   {object{"type": ""}, object{"type": "gvisor"}, "spec.type", "name the runtime, as in gvisor"},
		"pool":      {pool("Not.A.Name"), pool("a-name"), "spec.workerPool.name", "use lower case letters, digits and -"},
		"all nodes": {chosen(nil), chosen(object{"some": "nodes"}), "spec.workerPool.selector", "an empty one would choose every node"},
		"folder":    {object{"binaryPath": "opt/bin"}, object{"binaryPath": "/opt/bin"}, "spec.binaryPath", "give a clean absolute path"},
		"root":      {object{"binaryPath": "/"}, object{"binaryPath": "/opt"}, "spec.binaryPath", "give a folder below the root"},
		"flag":      {object{"providerConfig": object{"configFlags": object{"platform": "qemu"}}}, object{"providerConfig": object{"configFlags": object{"platform": "kvm"}}}, "spec.providerConfig.configFlags[platform]", "give one of systrap, kvm, ptrace"},
		"twin":      {pool("reviewed"), pool("by-hand"), "spec.type", "ContainerRuntime fairlead-nodes/gvisor-reviewed asks for gvisor on worker pool reviewed already"},
	}, func(changes ...object) answer {
		return c.ask(t, http.MethodPost, runtimePath+dry, object{
			"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "ContainerRuntime", "metadata": object{"name": "by-hand"}, "spec": with(base, changes...),
		})
	})
	c.refusals(t, map[string]refusal{
		"another type": {object{"type": "kata-containers"}, object{"type": "gvisor"}, "spec.type", "it was gvisor and cannot be changed"},
		"another pool": {pool("another"), pool("reviewed"), "spec.workerPool.name", "it was reviewed and cannot be changed"},
	}, c.patch(t, runtimePath+"/gvisor-reviewed"))
}

func (c *crew) reviewedShoots(t *testing.T) {
	const at = "spec.provider.workers[0]."
	base := object{"name": "w", "machine": object{"type": "m5.large", "image": object{"name": "ubuntu"}}, "cri": object{"name": "containerd", "containerRuntimes": []object{{"type": "gvisor"}}}}
	machine := func(fields object) object { return object{"machine": fields} }
	c.refusals(t, map[string]refusal{
		"machine":    {runtimesOf(object{"type": "kata-containers"}), machine(object{"type": "m5.metal"}), at + "machine.type", "choose one such as m5.metal"},
		"image":      {machine(object{"image": object{"name": "cos"}}), machine(object{"image": object{"name": "gardenlinux"}}), at + "machine.image.name", "no runtimes can be installed there"},
		"Kubernetes": {object{"kubernetes": object{"version": "1.13.9"}}, object{"kubernetes": object{"version": "1.33.2"}}, at + "kubernetes.version", "from Kubernetes 1.14 on"},
		"CRI":        {object{"cri": object{"name": "crio"}}, object{"cri": object{"name": "containerd"}}, at + "cri.name", `supported values: "containerd"`},
		"no CRI":     {object{"cri": object{"name": nil}}, object{"cri": object{"name": "containerd"}}, at + "cri.name", "runtimes are installed below a CRI runtime"},
		"twice":      {runtimesOf(object{"type": "gvisor"}, object{"type": "gvisor"}), runtimesOf(object{"type": "gvisor"}), at + "cri.containerRuntimes[1].type", "give each once"},
		"flag":       {configured("gvisor", object{"configFlags": object{"net-raw": "yes"}}), configured("gvisor", object{"configFlags": object{"net-raw": "true"}}), at + "cri.containerRuntimes[0].providerConfig.configFlags[net-raw]", `give "true" or "false"`},
	}, func(changes ...object) answer {
		return c.ask(t, http.MethodPost, "/apis/core.gardener.cloud/v1beta1/namespaces/default/shoots"+dry, object{
			"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "metadata": object{"name": "reviewed"},
			"spec": object{"kubernetes": object{"version": "1.33.1"}, "provider": object{"type": "aws", "workers": []object{with(base, changes...)}}},
		})
	})
}

// foreignClass has somebody else's class in the way of a type that a pool is to get.
func (c *crew) foreignClass(t *testing.T) {
	const class = classPath + "/kata-qemu"
	kata := object{"spec": runtimesOf(object{"type": "gvisor"}, object{"type": "kata-containers"})}
	c.must(t, http.MethodPost, classPath, object{"metadata": object{"name": "kata-qemu"}, "handler": "somebodys"}, nil)
	t.Cleanup(func() { _, _ = c.do(context.Background(), http.MethodDelete, class, nil) })
	const field, says = "spec.cri.containerRuntimes[1].type", "it needs RuntimeClass kata-qemu, which is somebody else's (handler somebodys)"
	eventually(t, func() error { // the webhook may not have heard of the class yet
		if got := c.ask(t, http.MethodPatch, poolPath+"/reviewed"+dry, kata); got.fields() != field || !strings.Contains(got.message(), says) {
			return fmt.Errorf("%s, not about %s", got, field)
		}
		return nil
	})
	c.must(t, http.MethodDelete, class, nil, nil)
	eventually(t, func() error {
		if got := c.ask(t, http.MethodPatch, poolPath+"/reviewed", kata); !got.ok() {
			return fmt.Errorf("the class has gone: %s", got)
		}
		return nil
	})
	c.ready(t, "reviewed")
}

// reviewedEnd takes everything away. What a pod uses stays, and what is on its way out
// cannot be changed any more, and goes.
func (c *crew) reviewedEnd(t *testing.T) {
	const path = runtimePath + "/gvisor-reviewed"
	c.namespaceFor(t, "users", nil)
	c.must(t, http.MethodPost, podsOf("users"), gated("user", object{"runtimeClassName": "gvisor"}), nil)
	eventually(t, func() error { // the webhook may not have heard of the pod yet
		got := c.ask(t, http.MethodDelete, classPath+"/gvisor"+dry, nil)
		if got.fields() != "metadata.name" || !strings.Contains(got.message(), "1 pods use it") || !strings.Contains(got.message(), "users/user") {
			return fmt.Errorf("the class of a pod: %s", got)
		}
		return nil
	})
	c.must(t, http.MethodDelete, poolPath+"/reviewed", nil, nil)
	eventually(t, func() error {
		var got gardener.ContainerRuntime
		if c.must(t, http.MethodGet, path, nil, &got); got.DeletionTimestamp == nil {
			return fmt.Errorf("it is not being deleted: %+v", got.Status)
		}
		return nil
	})
	c.refusals(t, map[string]refusal{
		"it goes": {object{"binaryPath": "/opt/other"}, object{"binaryPath": "/usr/bin"}, "spec", "what is to be taken off the nodes cannot be changed any more"},
	}, c.patch(t, path))
	c.must(t, http.MethodDelete, podsOf("users")+"/user", object{"gracePeriodSeconds": 0}, nil)
	c.gone(t, poolPath+"/reviewed", path, classPath+"/gvisor", classPath+"/kata-qemu")
	c.nothingLeft(t, "reviewed")
}
