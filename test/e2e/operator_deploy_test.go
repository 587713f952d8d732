package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"fairlead.run/test/images"
)

const (
	operatorNamespace = "fairlead-nodes"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":fairlead-operator"
)

// The manifests of the operator as they are. Its installer is a stand-in that says it
// has done what it was told: what is tried here is what the operator may do, in the
// whole life of a pool, and that it needs all of it.
func TestOperatorDeployed(t *testing.T) {
	needWebhook(t) // there is the audit log
	h := &hook{api: newAPI(t)}
	pushFairlead(t)
	if err := node.ServeAPIInPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	applyFiles(t, "../../deploy/crds", "../../deploy/crds/gardener")
	kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout", patience.String())
	// The installer's pods wait for folders that every node of their kind has.
	for _, folder := range []string{"/run/containerd", "/run/dbus"} {
		if err := node.Machine().Write(folder+"/.folder", ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"00-namespace", "10-rbac", "20-deployment", "40-networkpolicy"} {
		applyFiles(t, "../../deploy/operator/"+file+".yaml")
	}
	kubectl(t, "rollout", "status", "-n", operatorNamespace, "deployment/fairlead-operator", "--timeout", patience.String())
	apply(t, pushPayload(t, "1"))
	apply(t, poolWith(t, "32Mi"))
	t.Run("install", func(t *testing.T) {
		eventually(t, func() error { return h.nodesHave(t, "ready.fairlead.run/gvisor", true) })
		eventually(t, func() error { return h.classHas(t, "32Mi") })
	})
	t.Run("change", func(t *testing.T) {
		apply(t, poolWith(t, "64Mi"))
		eventually(t, func() error { return h.classHas(t, "64Mi") })
	})
	t.Run("another payload", func(t *testing.T) {
		apply(t, pushPayload(t, "2"))
		eventually(t, h.payloadIs("2"))
	})
	t.Run("remove", func(t *testing.T) {
		kubectl(t, "delete", "workerpool", "tested", "--timeout", patience.String())
		if err := h.nodesHave(t, "ready.fairlead.run/gvisor", false); err != nil {
			t.Error(err)
		}
		if got := h.ask(t, http.MethodGet, "/apis/node.k8s.io/v1/runtimeclasses/gvisor", nil); got.code != http.StatusNotFound {
			t.Errorf("the class is left: %s", got)
		}
	})
	t.Run("rights", operatorRights)
}

// standInInstaller is always done, and says so to probes.
const standInInstaller = `#!/bin/sh
case "$*" in *--ready*) exit 0;; esac
trap 'exit 0' TERM
while :; do sleep 1; done
`

// pushPayload serves the image of a payload, and is the object that tells of it.
func pushPayload(t *testing.T, version string) string {
	t.Helper()
	busybox, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	tools, err := images.Applets(busybox)
	if err != nil {
		t.Fatal(err)
	}
	spec := images.Spec{Layers: []images.Layer{busybox, tools, {Files: map[string]images.File{"fairlead": {Body: []byte(standInInstaller), Mode: 0o755}, "version": {Body: []byte(version)}}}}}
	built, err := images.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Push("library/fairlead-gvisor:"+version, spec); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`apiVersion: fairlead.run/v1alpha1
kind: RuntimePayload
metadata: {name: gvisor}
spec:
  image: fairlead-gvisor@%s
  manifest:
    apiVersion: payload.fairlead.run/v1alpha1
    kind: RuntimePayload
    type: gvisor
    version: %q
    os: linux
    architectures: [amd64, arm64]
    files: [{path: shim, mode: "0755", size: 0, sha256: "%s"}]
    handlers: [{name: runsc, containerd: {runtimeType: io.containerd.runsc.v1, runtimePath: shim}}]
`, built.Desc.Digest, version, strings.Repeat("0", 64))
}

// poolWith is a pool of all nodes, with the machine image that they have.
func poolWith(t *testing.T, overhead string) string {
	t.Helper()
	system, err := node.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.osImage}")
	if err != nil {
		t.Fatal(err)
	}
	image := "ubuntu"
	if strings.HasPrefix(system, "Debian") { // its programs go to the same folder
		image = "debian"
	}
	return fmt.Sprintf(`apiVersion: fairlead.run/v1alpha1
kind: WorkerPool
metadata: {name: tested}
spec:
  nodeSelector: {kubernetes.io/os: linux}
  machineImage: {name: %s}
  kubernetesVersion: "1.37"
  cri:
    name: containerd
    containerRuntimes:
    - type: gvisor
      providerConfig: {apiVersion: gvisor.fairlead.run/v1alpha1, kind: GVisorConfiguration, overhead: {memory: %s}}
`, image, overhead)
}

// nodesHave says which nodes have the label and are not to, or the reverse.
func (h *hook) nodesHave(t *testing.T, label string, wanted bool) error {
	t.Helper()
	out, err := node.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={range .items[*]}{.metadata.labels}{\"\\n\"}{end}")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"`+label+`":"true"`) != wanted {
			pools, _ := node.Kubectl(t.Context(), "get", "workerpools,containerruntimes,daemonsets,pods", "-A", "-o", "wide")
			return fmt.Errorf("label %s, wanted %t: %s\n%s", label, wanted, line, pools)
		}
	}
	return nil
}

// payloadIs says why not every node has a version of the payload.
func (h *hook) payloadIs(version string) func() error {
	return func() error {
		out, err := node.Kubectl(context.Background(), "get", "-n", operatorNamespace, "containerruntimes", "-o", "jsonpath={.items[*].status.lastOperation}")
		if err == nil && !(strings.Contains(out, "gvisor "+version+" was verified") && strings.Contains(out, "Succeeded")) {
			err = fmt.Errorf("it is not version %s: %s", version, out)
		}
		return err
	}
}

func (h *hook) classHas(t *testing.T, overhead string) error {
	t.Helper()
	got := h.ask(t, http.MethodGet, "/apis/node.k8s.io/v1/runtimeclasses/gvisor", nil)
	if !strings.Contains(string(got.body), `"memory":"`+overhead+`"`) {
		return fmt.Errorf("class gvisor is not with %s: %s", overhead, got.body)
	}
	return nil
}

// The operator was refused nothing, and has asked for everything that it may. The
// account of the installer has asked for nothing at all.
func operatorRights(t *testing.T) {
	used, updates := map[string]bool{}, 0
	refused, err := auditLines(func(l auditLine) bool {
		if strings.HasPrefix(l.User.Username, "system:serviceaccount:"+operatorNamespace+":") && l.User.Username != operatorUser {
			return true
		}
		if l.User.Username != operatorUser || l.ObjectRef.Resource == "" {
			return false
		}
		if l.Verb == "update" && l.ObjectRef.Resource == "daemonsets" {
			updates++
		}
		used[l.Verb+" "+what(l.ObjectRef.APIGroup, l.ObjectRef.Resource, l.ObjectRef.Subresource)] = true
		return l.ResponseStatus.Code == http.StatusForbidden || l.ResponseStatus.Code == http.StatusUnauthorized
	})
	if err != nil || len(used) == 0 || len(refused) > 0 {
		t.Errorf("%v: these are refused, or by somebody else: %+v", err, refused)
	}
	// Each of two has got another payload once, and may have been written twice at once.
	if updates > 4 {
		t.Errorf("DaemonSets that are as they should be are written again: %d times", updates)
	}
	for _, right := range grantedRights(t, "../../deploy/operator/10-rbac.yaml") {
		// A server that cannot stream lists is asked for one before each watch.
		streamed, isList := strings.CutPrefix(right, "list ")
		if !used[right] && !(isList && used["watch "+streamed]) {
			t.Errorf("allowed and not needed: %s", right)
		}
	}
}

func what(group, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return group + "/" + resource
}

// grantedRights are the verbs that the roles of a manifest have.
func grantedRights(t *testing.T, file string) (out []string) {
	t.Helper()
	for document := range bytes.SplitSeq([]byte(mustRead(t, file)), []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, group := range rule.APIGroups {
					for _, verb := range rule.Verbs {
						out = append(out, verb+" "+what(group, resource, ""))
					}
				}
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s grants nothing", file)
	}
	return out
}
