package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/node/manifest/fields"
)

// withoutCluster takes out of an object that a cluster has stored (kubectl get
// -o yaml) what nobody wrote: what the API server, the scheduler and admission
// added, and where the object was and how it did. It decodes the rest into out
// again, and returns what was left out. What a person may have written stays,
// and is refused like anything else if it is not honoured.
func (d *document) withoutCluster(out any) []string {
	meta, _ := d.tree["metadata"].(map[string]any)
	if fields.IsZero(meta["uid"]) && fields.IsZero(meta["resourceVersion"]) {
		return nil
	}
	c := cluster{doc: d}
	for _, name := range []string{
		"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName",
		"generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid",
	} {
		c.drop("metadata", meta, name)
	}
	c.drop("", d.tree, "status")
	spec, _ := d.tree["spec"].(map[string]any)
	switch d.tree["kind"] {
	case "Pod":
		c.pod(spec)
	case "Deployment":
		c.deployment(spec)
	case "DaemonSet":
		c.dropDefault("spec", spec, "revisionHistoryLimit", "10")
		c.dropDefault("spec", spec, "updateStrategy", `{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1},"type":"RollingUpdate"}`)
	case "StatefulSet":
		c.dropDefault("spec", spec, "revisionHistoryLimit", "10")
		c.dropDefault("spec", spec, "updateStrategy", `{"rollingUpdate":{"partition":0},"type":"RollingUpdate"}`)
		c.dropDefault("spec", spec, "persistentVolumeClaimRetentionPolicy", `{"whenDeleted":"Retain","whenScaled":"Retain"}`)
		claims, _ := spec["volumeClaimTemplates"].([]any)
		for i := range claims {
			claim, _ := claims[i].(map[string]any)
			c.drop(fmt.Sprintf("spec.volumeClaimTemplates[%d]", i), claim, "status")
		}
	case "Job":
		c.job(spec)
	case "PersistentVolumeClaim":
		c.drop("spec", spec, "volumeName")
	}
	text, err := json.Marshal(d.tree)
	if err != nil {
		return nil // it was JSON before
	}
	d.json = text
	reflect.ValueOf(out).Elem().SetZero()
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, out) // it was decoded before
	return c.left
}

type cluster struct {
	doc  *document
	left []string
}

// drop removes a field. One with an empty value is not worth a word.
func (c *cluster) drop(path string, o map[string]any, name string) {
	if !fields.IsZero(o[name]) {
		c.left = append(c.left, fields.Join(path, name))
	}
	delete(o, name)
}

// dropDefault removes a field that has the value which the cluster sets.
func (c *cluster) dropDefault(path string, o map[string]any, name, value string) {
	if text, _ := json.Marshal(o[name]); string(text) == value {
		c.drop(path, o, name)
	}
}

func (c *cluster) pod(spec map[string]any) {
	c.drop("spec", spec, "nodeName")
	c.drop("spec", spec, "priority")
	c.dropDefault("spec", spec, "preemptionPolicy", `"PreemptLowerPriority"`)
	c.dropItems(spec, "spec", "tolerations", isDefaultToleration)
	tokens := map[any]bool{}
	c.dropItems(spec, "spec", "volumes", func(v map[string]any) bool {
		if isToken(v) {
			tokens[v["name"]] = true
		}
		return tokens[v["name"]]
	})
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for i := range containers {
			ct, _ := containers[i].(map[string]any)
			c.dropItems(ct, fmt.Sprintf("spec.%s[%d]", list, i), "volumeMounts", func(m map[string]any) bool { return tokens[m["name"]] })
		}
	}
}

// isDefaultToleration knows the two that admission gives to every pod.
func isDefaultToleration(t map[string]any) bool {
	key := t["key"]
	return (key == "node.kubernetes.io/not-ready" || key == "node.kubernetes.io/unreachable") &&
		t["effect"] == "NoExecute" && t["operator"] == "Exists" && fmt.Sprint(t["tolerationSeconds"]) == "300"
}

// isToken knows the volume that admission mounts into every container: there
// is no API server here that its token would be good for.
func isToken(v map[string]any) bool {
	name, _ := v["name"].(string)
	projected, _ := v["projected"].(map[string]any)
	sources, _ := projected["sources"].([]any)
	return strings.HasPrefix(name, "kube-api-access-") && slices.ContainsFunc(sources, func(s any) bool {
		source, _ := s.(map[string]any)
		return source["serviceAccountToken"] != nil
	})
}

// dropItems removes items of a list, and their nodes, so that the places of
// the others still lead to their lines.
func (c *cluster) dropItems(o map[string]any, path, name string, gone func(map[string]any) bool) {
	list, _ := o[name].([]any)
	node, _, _ := c.doc.find(fields.Join(path, name))
	for i := len(list) - 1; i >= 0; i-- {
		item, _ := list[i].(map[string]any)
		if !gone(item) {
			continue
		}
		c.left = append(c.left, fmt.Sprintf("%s.%s[%d]", path, name, i))
		list = slices.Delete(list, i, i+1)
		if node != nil && i < len(node.Content) {
			node.Content = slices.Delete(node.Content, i, i+1)
		}
	}
	if o[name] != nil {
		o[name] = list
	}
}

func (c *cluster) deployment(spec map[string]any) {
	c.dropDefault("spec", spec, "progressDeadlineSeconds", "600")
	c.dropDefault("spec", spec, "revisionHistoryLimit", "10")
	c.dropDefault("spec", spec, "strategy", `{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}`)
}

// job drops the selector, and the labels that it selects by: they hold the UID of
// the Job in the cluster.
func (c *cluster) job(spec map[string]any) {
	c.dropDefault("spec", spec, "podReplacementPolicy", `"TerminatingOrFailed"`)
	if fields.IsZero(spec["manualSelector"]) {
		c.drop("spec", spec, "selector")
	}
	template, _ := spec["template"].(map[string]any)
	meta, _ := template["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	for _, name := range []string{"batch.kubernetes.io/controller-uid", "controller-uid"} {
		c.drop("spec.template.metadata.labels", labels, name)
	}
}
