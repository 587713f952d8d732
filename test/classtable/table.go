package classtable

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Case is one object and the answer to it.
type Case struct {
	Name  string               // unique
	Old   *nodev1.RuntimeClass // that Class replaces; nil where Class is created
	Class *nodev1.RuntimeClass
	// Faults are the fields that it is refused for, sorted, each once. None means
	// that it is accepted.
	Faults []string
	// Mended says that a server puts it right before it looks at it.
	Mended bool
}

// AtServer is Faults with the words of an API server: it takes the overhead for
// the limits of a container, and does not say which label of a selector or which
// owner it means.
func (c Case) AtServer() []string {
	if c.Mended {
		return nil
	}
	var out []string
	for _, path := range c.Faults {
		if key, ok := strings.CutPrefix(path, "overhead.podFixed"); ok {
			path = "overhead.limits" + key
		}
		if strings.HasPrefix(path, "scheduling.nodeSelector[") {
			path = "scheduling.nodeSelector"
		}
		if owner, ok := strings.CutPrefix(path, "metadata.ownerReferences["); ok {
			_, field, _ := strings.Cut(owner, "]")
			path = "metadata.ownerReferences" + field
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// All is the whole table. The objects are the caller's.
func All() []Case {
	return slices.Concat(names(), handlers(), metadata(), owners(), overheads(), selectors(), tolerations(), whole(), updates())
}

// sound is a class that is accepted.
func sound() *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: "table"}, Handler: "runc",
	}
}

// of makes a case of a sound class that is changed.
func of(name string, change func(*nodev1.RuntimeClass), faults ...string) Case {
	c := sound()
	change(c)
	slices.Sort(faults)
	return Case{Name: name, Class: c, Faults: faults}
}

// short is a value as a part of a name.
func short(value string) string {
	if len(value) > 40 {
		return fmt.Sprintf("%.8q and so on, %d bytes", value, len(value))
	}
	return fmt.Sprintf("%q", value)
}

// x is n letters.
func x(n int) string { return strings.Repeat("x", n) }

// domain is a domain of n letters.
func domain(n int) string { return strings.Repeat("d.", n/2)[:n-1] + "d" }

// values makes a case of each value, with the same faults for all.
func values(what string, set func(*nodev1.RuntimeClass, string), list []string, faults ...string) []Case {
	var out []Case
	for _, v := range list {
		out = append(out, of(what+" "+short(v), func(c *nodev1.RuntimeClass) { set(c, v) }, faults...))
	}
	return out
}

func names() []Case {
	set := func(c *nodev1.RuntimeClass, v string) { c.Name = v }
	good := []string{"a", "0", "123", "1a", "gvisor", "kata-containers", "a--b", "a.b", "a.b.c", "0.0", x(63), x(64), x(253), domain(253)}
	bad := []string{"", "A", "gVisor", "a_b", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a-.b", "a b", "a/b", "a%b", "ä", "*", x(254), domain(255)}
	return slices.Concat(values("name", set, good), values("name", set, bad, "metadata.name"))
}

func handlers() []Case {
	set := func(c *nodev1.RuntimeClass, v string) { c.Handler = v }
	good := []string{"a", "0", "123", "runc", "runsc", "kata-qemu", "a--b", x(63)}
	bad := []string{"", "RunC", "a.b", "io.containerd.runc.v2", "a_b", "-a", "a-", "a b", " a", "a/b", "../runc", "ä", "*", x(64)}
	return slices.Concat(values("handler", set, good), values("handler", set, bad, "handler"))
}

func metadata() []Case {
	label := func(c *nodev1.RuntimeClass, v string) { c.Labels = map[string]string{v: "b"} }
	value := func(c *nodev1.RuntimeClass, v string) { c.Labels = map[string]string{"a": v} }
	note := func(c *nodev1.RuntimeClass, v string) { c.Annotations = map[string]string{v: "any, even\n\x01"} }
	final := func(c *nodev1.RuntimeClass, v string) { c.Finalizers = []string{v} }
	named := func(c *nodev1.RuntimeClass, v string) { c.GenerateName = v }
	out := slices.Concat(
		values("label key", label, []string{"a", "A_b.c", "example.com/a", domain(253) + "/" + x(63)}),
		values("label key", label, []string{"", "a b", "a/b/c", "/a", "a/", "Example.com/a", x(64)}, "metadata.labels"),
		values("label value", value, []string{"", "b", "B_c.d-e", x(63)}),
		values("label value", value, []string{"b c", "-b", "b.", "b/c", x(64)}, "metadata.labels"),
		values("annotation", note, []string{"a", "example.com/A", "EXAMPLE.com/a"}),
		values("annotation", note, []string{"", "a b", "a/b/c", x(64)}, "metadata.annotations"),
		values("finalizer", final, []string{"a", "example.com/a", "orphan"}),
		values("finalizer", final, []string{"", "a b", "a/b/c"}, "metadata.finalizers"),
		values("generateName beside a name", named, []string{"a", "a-"}),
		values("generateName beside a name", named, []string{"A", "a_"}, "metadata.generateName"),
		[]Case{
			of("annotations of 256 KiB", func(c *nodev1.RuntimeClass) { c.Annotations = map[string]string{"a": x(256<<10 - 1)} }),
			of("annotations of more", func(c *nodev1.RuntimeClass) { c.Annotations = map[string]string{"a": x(256 << 10)} }, "metadata.annotations"),
			of("finalizers that exclude each other", func(c *nodev1.RuntimeClass) { c.Finalizers = []string{"orphan", "foregroundDeletion"} }, "metadata.finalizers"),
		},
	)
	only := of("generateName without a name", func(c *nodev1.RuntimeClass) { c.Name, c.GenerateName = "", "a-" }, "metadata.name")
	space := of("namespace", func(c *nodev1.RuntimeClass) { c.Namespace = "default" }, "metadata.namespace")
	only.Mended, space.Mended = true, true
	return append(out, only, space)
}

func owners() []Case {
	own := func(name string, change func(*metav1.OwnerReference), faults ...string) Case {
		return of("owner "+name, func(c *nodev1.RuntimeClass) {
			ref := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "a", UID: "b"}
			change(&ref)
			c.OwnerReferences = []metav1.OwnerReference{ref}
		}, faults...)
	}
	yes := true
	return []Case{
		own("with all", func(*metav1.OwnerReference) {}),
		own("without apiVersion", func(r *metav1.OwnerReference) { r.APIVersion = "" }, "metadata.ownerReferences[0].apiVersion"),
		own("without kind", func(r *metav1.OwnerReference) { r.Kind = "" }, "metadata.ownerReferences[0].kind"),
		own("without name", func(r *metav1.OwnerReference) { r.Name = "" }, "metadata.ownerReferences[0].name"),
		own("without uid", func(r *metav1.OwnerReference) { r.UID = "" }, "metadata.ownerReferences[0].uid"),
		own("that is an event", func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "v1", "Event" }, "metadata.ownerReferences[0]"),
		of("two owners that control", func(c *nodev1.RuntimeClass) {
			c.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "Deployment", Name: "a", UID: "b", Controller: &yes},
				{APIVersion: "apps/v1", Kind: "Deployment", Name: "c", UID: "d", Controller: &yes},
			}
		}, "metadata.ownerReferences"),
	}
}

func selectors() []Case {
	key := func(c *nodev1.RuntimeClass, v string) {
		c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{v: "b"}}
	}
	value := func(c *nodev1.RuntimeClass, v string) {
		c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"a": v}}
	}
	at := func(key string) string { return "scheduling.nodeSelector[" + key + "]" }
	out := slices.Concat(
		values("selector key", key, []string{"a", "A", "a_b.c", "0", "kubernetes.io/os", "beta.kubernetes.io/os", "example.com/" + x(63), domain(253) + "/a", x(63)}),
		values("selector value", value, []string{"", "b", "B", "0", "b_c.d-e", x(63)}),
		values("selector value", value, []string{"b c", "-b", "b-", ".", "b/c", "b,c", "ä", "!b", x(64)}, at("a")),
	)
	for _, k := range []string{"", " ", "a b", "-a", "a-", "a/", "/a", "a/b/c", "A.com/b", "a_b/c", "a,b", x(64), domain(255) + "/a"} {
		out = append(out, values("selector key", key, []string{k}, at(k))...)
	}
	return append(out,
		of("selector that is empty", func(c *nodev1.RuntimeClass) {
			c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{}}
		}),
		of("selector with a wrong key and a wrong value", func(c *nodev1.RuntimeClass) {
			c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"a b": "c d", "e": "f", "g": "h i"}}
		}, at("a b"), at("g")),
	)
}

func whole() []Case {
	return []Case{
		of("sound", func(*nodev1.RuntimeClass) {}),
		of("sound, with everything", everything),
		of("scheduling that says nothing", func(c *nodev1.RuntimeClass) { c.Scheduling = &nodev1.Scheduling{} }),
		of("overhead that says nothing", func(c *nodev1.RuntimeClass) { c.Overhead = &nodev1.Overhead{} }),
		of("everything wrong", func(c *nodev1.RuntimeClass) {
			everything(c)
			c.Name, c.Handler = "A", "B"
			c.Overhead.PodFixed["pods"] = c.Overhead.PodFixed["cpu"]
			c.Scheduling.NodeSelector["a"] = "b c"
			c.Scheduling.Tolerations[0].Operator = "In"
		}, "metadata.name", "handler", "overhead.podFixed[pods]", "scheduling.nodeSelector[a]", "scheduling.tolerations[0].operator"),
	}
}

func updates() []Case {
	update := func(name string, change func(*nodev1.RuntimeClass), faults ...string) Case {
		c := of("update: "+name, func(c *nodev1.RuntimeClass) { everything(c); change(c) }, faults...)
		c.Old = sound()
		everything(c.Old)
		return c
	}
	return []Case{
		update("nothing", func(*nodev1.RuntimeClass) {}),
		update("labels", func(c *nodev1.RuntimeClass) { c.Labels = map[string]string{"a": "b"} }),
		update("another overhead", func(c *nodev1.RuntimeClass) { c.Overhead.PodFixed["memory"] = amount("1Gi") }),
		update("no overhead", func(c *nodev1.RuntimeClass) { c.Overhead = nil }),
		update("another selector", func(c *nodev1.RuntimeClass) { c.Scheduling.NodeSelector = map[string]string{"b": "c"} }),
		update("no scheduling", func(c *nodev1.RuntimeClass) { c.Scheduling = nil }),
		update("another handler", func(c *nodev1.RuntimeClass) { c.Handler = "crun" }, "handler"),
		update("a wrong handler", func(c *nodev1.RuntimeClass) { c.Handler = "C" }, "handler"),
		update("no handler", func(c *nodev1.RuntimeClass) { c.Handler = "" }, "handler"),
		update("wrong labels", func(c *nodev1.RuntimeClass) { c.Labels = map[string]string{"a": "b c"} }, "metadata.labels"),
		update("a negative overhead", func(c *nodev1.RuntimeClass) { c.Overhead.PodFixed["cpu"] = amount("-1") }, "overhead.podFixed[cpu]"),
		update("a wrong selector", func(c *nodev1.RuntimeClass) { c.Scheduling.NodeSelector["a"] = "b c" }, "scheduling.nodeSelector[a]"),
		update("a wrong toleration", func(c *nodev1.RuntimeClass) { c.Scheduling.Tolerations[0].Effect = "Never" }, "scheduling.tolerations[0].effect"),
		update("another handler and wrong labels", func(c *nodev1.RuntimeClass) {
			c.Handler, c.Labels = "crun", map[string]string{"a": "b c"}
		}, "handler", "metadata.labels"),
	}
}

// everything sets all that a class has.
func everything(c *nodev1.RuntimeClass) {
	c.Overhead = &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": amount("250m"), "memory": amount("64Mi")}}
	c.Scheduling = &nodev1.Scheduling{
		NodeSelector: map[string]string{"a": "b"},
		Tolerations:  []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
	}
}
