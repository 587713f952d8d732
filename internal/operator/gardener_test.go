package operator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/containerruntime"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/plugins"
	"fairlead.run/internal/operator/workerpool"
)

const shootNamespace = "shoot--foo--bar"

// of is an object of a kind that only Gardener has a type for.
func of(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func config(t *testing.T, name, purpose, pool string) *unstructured.Unstructured {
	return of(t, fmt.Sprintf(`{"apiVersion":"extensions.gardener.cloud/v1alpha1","kind":"OperatingSystemConfig","metadata":{"name":%q,"namespace":%q,"labels":{"worker.gardener.cloud/pool":%q}},
"spec":{"type":"ubuntu","purpose":%q,"files":[{"path":"/etc/theirs"}],"criConfig":{"name":"containerd","containerd":{"sandboxImage":"pause"}}}}`, name, shootNamespace, pool, purpose))
}

// In a seed, a runtime goes into what machines follow, and nowhere else.
func TestGardener(t *testing.T) {
	w := newWorld(t)
	p := aPayload("gvisor", "1", "runsc")
	p.Spec.Manifest.Architectures = []string{"amd64", "arm64"}
	w.create(p, config(t, "now", "reconcile", "a"), config(t, "birth", "provision", "a"), config(t, "others", "reconcile", "b"))
	set := plugins.All()
	r := containerruntime.InGardener(&containerruntime.Reconciler{Client: w.client, Plugin: set.Lookup("gvisor"), Plugins: set, Now: func() time.Time { return w.now }})
	c := asked("a")
	c.Namespace = shootNamespace
	c.Annotations = map[string]string{gardener.AnnotationOperation: gardener.OrderReconcile}
	w.create(c)
	act := func() {
		t.Helper()
		for range 3 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	text := func(name string) string {
		u := config(t, name, "", "")
		w.get(u)
		out, _ := json.Marshal(u.Object["spec"])
		return string(out)
	}
	act()
	w.get(c)
	if err := workerpool.Done(c); err != nil {
		t.Error(err)
	}
	w.wants("machines", text("now"), "/etc/theirs", `"path":"/var/bin/gvisor/1-`, "registry.example/gvisor@sha256:", `"runtime_type":"/var/bin/gvisor/1-`, "/shim", "sandboxImage")
	for _, other := range []string{"birth", "others"} {
		if strings.Contains(text(other), "gvisor") {
			t.Errorf("%s: %s", other, text(other))
		}
	}
	// Gardener writes it anew, and the entries come back.
	fresh := config(t, "now", "reconcile", "a")
	was := config(t, "now", "", "")
	w.get(was)
	fresh.SetResourceVersion(was.GetResourceVersion())
	w.must(w.client.Update(t.Context(), fresh))
	act()
	w.wants("again", text("now"), `"path":"/var/bin/gvisor/1-`)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "extension-runtime-gvisor-fairlead", Namespace: shootNamespace}}
	if !w.get(secret) {
		t.Fatal("no Secret with classes")
	}
	w.wants("class", string(secret.Data["runtimeclass-gvisor.yaml"]), "handler: runsc", "containerruntime.worker.gardener.cloud/gvisor: \"true\"", "kind: RuntimeClass")
	managed := of(t, `{"apiVersion":"resources.gardener.cloud/v1alpha1","kind":"ManagedResource","metadata":{"name":"extension-runtime-gvisor-fairlead","namespace":"`+shootNamespace+`"}}`)
	if !w.get(managed) {
		t.Error("no ManagedResource")
	}
	var all corev1.NodeList
	w.must(w.client.List(t.Context(), &all))
	if len(all.Items) > 0 || w.class("gvisor") != nil {
		t.Error("it touched the seed")
	}
	w.get(c)
	w.must(w.client.Delete(t.Context(), c))
	act()
	if w.get(c) || w.get(secret) || w.get(managed) || strings.Contains(text("now"), "gvisor") || !strings.Contains(text("now"), "/etc/theirs") {
		t.Errorf("something is left: %s", text("now"))
	}
}

// An extension for an operating system acts on orders alone: one that is not told to look
// at a changed OperatingSystemConfig never says that it has seen it, for which gardenlet
// waits. An order that is there stays, and what has not changed gets none.
func TestGardenerOrdersWhatItHasChanged(t *testing.T) {
	w := newWorld(t)
	moving := config(t, "moving", "reconcile", "a")
	moving.SetAnnotations(map[string]string{gardener.AnnotationOperation: gardener.OrderMigrate, "of": "gardener"})
	w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), moving, config(t, "others", "reconcile", "b"))
	set := plugins.All()
	r := containerruntime.InGardener(&containerruntime.Reconciler{Client: w.client, Plugin: set.Lookup("gvisor"), Plugins: set, Now: func() time.Time { return w.now }})
	c := asked("a")
	c.Namespace = shootNamespace
	w.create(c)
	check := func(want map[string]string) {
		t.Helper()
		for range 3 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}}); err != nil {
				t.Fatal(err)
			}
		}
		for name, order := range want {
			u := config(t, name, "", "")
			w.get(u)
			if got := u.GetAnnotations()[gardener.AnnotationOperation]; got != order || name == "moving" && u.GetAnnotations()["of"] != "gardener" {
				t.Errorf("%s has the annotations %v, want the order %q", name, u.GetAnnotations(), order)
			}
			if order == gardener.OrderReconcile { // the extension takes it
				u.SetAnnotations(nil)
				w.must(w.client.Update(t.Context(), u))
			}
		}
	}
	check(map[string]string{"now": gardener.OrderReconcile, "moving": gardener.OrderMigrate, "others": ""})
	check(map[string]string{"now": "", "moving": gardener.OrderMigrate, "others": ""})
	w.get(c)
	w.must(w.client.Delete(t.Context(), c))
	check(map[string]string{"now": gardener.OrderReconcile, "moving": gardener.OrderMigrate, "others": ""})
}

// Classes are those of all pools that have the type, by whichever of its names.
func TestGardenerAlias(t *testing.T) {
	w := newWorld(t)
	w.create(aPayload("kata-containers", "1", "kata"), config(t, "of-a", "reconcile", "a"), config(t, "of-b", "reconcile", "b"))
	set := plugins.All()
	r := containerruntime.InGardener(&containerruntime.Reconciler{Client: w.client, Plugin: set.Lookup("kata-containers"), Plugins: set, Now: func() time.Time { return w.now }})
	act := func(c *gardener.ContainerRuntime) {
		t.Helper()
		for range 3 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	long, short := asked("a"), asked("b")
	for _, c := range []*gardener.ContainerRuntime{long, short} {
		typ := map[*gardener.ContainerRuntime]string{long: "kata-containers", short: "kata"}[c]
		w.now = w.now.Add(time.Minute)
		c.Name, c.Namespace, c.Spec.Type = typ+"-"+c.Spec.WorkerPool.Name, shootNamespace, typ
		c.Annotations = map[string]string{gardener.AnnotationOperation: gardener.OrderReconcile}
		w.create(c)
		act(c)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "extension-runtime-kata-containers-fairlead", Namespace: shootNamespace}}
	// Gardener labels nodes by the name that their pool has for the type. There is one class
	// for all, so that there can be one name.
	act(short)
	class := func() string { w.get(secret); return string(secret.Data["runtimeclass-kata.yaml"]) }
	w.wants("the class", class(), `containerruntime.worker.gardener.cloud/kata-containers: "true"`)
	w.get(long)
	w.get(short)
	if err := workerpool.Done(long); err != nil {
		t.Errorf("the older one: %v", err)
	}
	if err := workerpool.Done(short); err == nil || !strings.Contains(err.Error(), "ContainerRuntime "+shootNamespace+"/kata-containers-a asks for kata-containers, and nodes of pool b have containerruntime.worker.gardener.cloud/kata: ask for it by one name") {
		t.Errorf("the younger one, whose nodes the class does not find: %v", err)
	}
	for i, c := range []*gardener.ContainerRuntime{long, short} {
		if i == 1 {
			act(short)
			w.wants("the class of the other name", class(), `containerruntime.worker.gardener.cloud/kata: "true"`)
			if w.get(short); workerpool.Done(short) != nil {
				t.Errorf("alone it is not done: %v", workerpool.Done(short))
			}
		}
		if !w.get(secret) {
			t.Fatalf("no Secret with classes while %d objects ask for them", 2-i)
		}
		w.get(c)
		w.must(w.client.Delete(t.Context(), c))
		act(c)
		if w.get(c) {
			t.Fatalf("%s is left", c.Name)
		}
	}
	if w.get(secret) {
		t.Error("the classes are left")
	}
}

// A pool that has asked for a type by one of its names, and asks by the other one, has it
// all the time: what goes takes nothing along, and is in nobody's way.
func TestGardenerAliasThatChanges(t *testing.T) {
	w, act := seed(t, "kata-containers")
	short, long := inShoot("a"), inShoot("a")
	short.Name, short.Spec.Type = "kata-a", "kata"
	long.Name, long.Spec.Type = "kata-containers-a", "kata-containers"
	w.create(aPayload("kata-containers", "1", "kata"), config(t, "now", "reconcile", "a"), short)
	act(short.Name)
	w.get(short)
	w.must(w.client.Delete(t.Context(), short))
	w.now = w.now.Add(time.Minute)
	w.create(long)
	act(long.Name)
	w.get(long)
	if err := workerpool.Done(long); err != nil {
		t.Error(err)
	}
	act(short.Name)
	u := config(t, "now", "", "")
	w.get(u)
	if text, _ := json.Marshal(u.Object["spec"]); w.get(short) || !strings.Contains(string(text), `"runtime_type":"/var/bin/kata-containers/1-`) {
		t.Errorf("it is still there, or took the entries along: %s", text)
	}
	if !w.get(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "extension-runtime-kata-containers-fairlead", Namespace: shootNamespace}}) {
		t.Error("the classes are gone")
	}
}

// A gardenlet writes an OperatingSystemConfig without the entries, and does not know those
// of the release before, from which pods run. They come back, also in another seed.
func TestFormerFilesOutliveGardenlet(t *testing.T) {
	w, act := seed(t, "gvisor")
	release := aPayload("gvisor", "1", "runsc")
	c := inShoot("a")
	w.create(release, config(t, "now", "reconcile", "a"), c)
	files := func(name string) (out []string) {
		u := config(t, name, "", "")
		w.get(u)
		all, _, _ := unstructured.NestedSlice(u.Object, "spec", "files")
		for _, f := range all {
			at, _, _ := strings.Cut(strings.TrimPrefix(f.(map[string]any)["path"].(string), "/var/bin/gvisor/"), "-")
			if at != "etc" { // a folder of configs
				out = append(out, at)
			}
		}
		slices.Sort(out)
		return out
	}
	anew := func(text ...string) {
		t.Helper()
		fresh, was := config(t, "now", "reconcile", "a"), config(t, "now", "", "")
		w.get(was)
		fresh.SetResourceVersion(was.GetResourceVersion())
		for _, field := range text {
			unstructured.RemoveNestedField(fresh.Object, "spec", "criConfig", field)
		}
		w.must(w.client.Update(t.Context(), fresh))
	}
	upgrade := func(version string) {
		w.change(release, func() { release.Spec = aPayload("gvisor", version, "runsc").Spec })
	}
	expect := func(what, name string, want ...string) {
		t.Helper()
		act(c.Name)
		if got := files(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", what, got, want)
		}
		w.get(c)
		if err := workerpool.Done(c); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("at first", "now", "/etc/theirs", "1")
	upgrade("2.0")
	expect("upgraded", "now", "/etc/theirs", "1", "2.0")
	anew()
	expect("written anew", "now", "/etc/theirs", "1", "2.0")
	anew("containerd")
	expect("without containerd", "now", "/etc/theirs", "1", "2.0")
	anew()
	upgrade("3.0")
	expect("upgraded while it was written anew", "now", "/etc/theirs", "2.0", "3.0")
	w.create(config(t, "next", "reconcile", "a"))
	expect("for machines that come", "next", "/etc/theirs", "3.0")
	expect("for those that are there", "now", "/etc/theirs", "2.0", "3.0")
	version := c.ResourceVersion
	act(c.Name)
	if w.get(c); c.ResourceVersion != version {
		t.Error("what is stored is stored again and again")
	}
	// What somebody else has stored says nothing.
	was := c.DeepCopy()
	c.Status.State = settings(`{"apiVersion":"x","kind":"RuntimeState","configs":[]}`)
	w.must(w.client.Status().Patch(t.Context(), c, client.MergeFrom(was)))
	anew()
	expect("without a memory", "now", "/etc/theirs", "3.0")
	w.must(w.client.Delete(t.Context(), c))
	act(c.Name)
	if got := files("now"); w.get(c) || !slices.Equal(got, []string{"/etc/theirs"}) {
		t.Errorf("left are %q", got)
	}
}

// An API server from before 1.20 has classes of another version.
func TestClassesOfOldServers(t *testing.T) {
	w := newWorld(t)
	k := &classes.Keeper{Client: w.client, Live: w.client, Beta: true}
	want := classes.Wanted("gvisor", plugin.Class{Name: "gvisor", Handler: "runsc"})
	for range 2 {
		w.must(k.Ensure(t.Context(), want))
	}
	had := &nodev1beta1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}}
	if !w.get(had) || had.Handler != "runsc" || had.Scheduling.NodeSelector[names.Handler+"runsc"] != "gvisor" {
		t.Errorf("%+v", had)
	}
	if w.class("gvisor") != nil {
		t.Error("there is one of v1")
	}
	if owner, err := k.Foreign(t.Context(), "gvisor", "kata-containers"); err != nil || owner == "" {
		t.Errorf("%q %v", owner, err)
	}
	w.must(k.Remove(t.Context(), "gvisor"))
	if w.get(had) {
		t.Error("it is still there")
	}
}

// seed is a world in which the operator acts on one type in Gardener's way.
func seed(t *testing.T, typ string) (w *world, act func(names ...string)) {
	w = newWorld(t)
	set := plugins.All()
	r := containerruntime.InGardener(&containerruntime.Reconciler{Client: w.client, Plugin: set.Lookup(typ), Plugins: set, Now: func() time.Time { return w.now }})
	return w, func(names ...string) {
		t.Helper()
		for range 3 {
			for _, name := range names {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: shootNamespace, Name: name}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func inShoot(pool string) *gardener.ContainerRuntime {
	c := asked(pool)
	c.Namespace = shootNamespace
	return c
}

// Entries in nothing are no success: who waits is told to, and it is tried again.
func TestGardenerWithoutConfigs(t *testing.T) {
	w, act := seed(t, "gvisor")
	c := inShoot("a")
	w.create(aPayload("gvisor", "1", "runsc"), c, config(t, "birth", "provision", "a"))
	act(c.Name)
	w.get(c)
	if e := c.Status.LastError; e == nil || !slices.Equal(e.Codes, []gardener.ErrorCode{gardener.CodeRetryable}) || !strings.Contains(e.Description, "no OperatingSystemConfig that machines of pool a follow") {
		t.Errorf("%+v", c.Status)
	}
	w.create(config(t, "now", "reconcile", "a"))
	act(c.Name)
	w.get(c)
	if err := workerpool.Done(c); err != nil {
		t.Error(err)
	}
	// What is in a configuration can be taken out whether or not there is a payload.
	w.must(w.client.Delete(t.Context(), aPayload("gvisor", "1", "runsc")))
	w.must(w.client.Delete(t.Context(), c))
	act(c.Name)
	u := config(t, "now", "", "")
	w.get(u)
	if text, _ := json.Marshal(u.Object["spec"]); w.get(c) || strings.Contains(string(text), "gvisor") {
		t.Errorf("it is still there: %s", text)
	}
}

// A shoot's classes are of the version that its API server has.
func TestGardenerClassesByVersion(t *testing.T) {
	for version, want := range map[string]string{"": "v1", "1.36.3": "v1", "1.20.0": "v1", "1.19.16": "v1beta1", "v1.14.0": "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			w, act := seed(t, "gvisor")
			c := inShoot("a")
			w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), c)
			if version != "" {
				w.create(of(t, `{"apiVersion":"extensions.gardener.cloud/v1alpha1","kind":"Cluster","metadata":{"name":"`+shootNamespace+`"},"spec":{"shoot":{"spec":{"kubernetes":{"version":"`+version+`"}}}}}`))
			}
			act(c.Name)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "extension-runtime-gvisor-fairlead", Namespace: shootNamespace}}
			w.get(secret)
			w.wants("class", string(secret.Data["runtimeclass-gvisor.yaml"]), "apiVersion: node.k8s.io/"+want+"\n", "handler: runsc\n", "memory: 32Mi", "containerruntime.worker.gardener.cloud/gvisor: \"true\"")
		})
	}
}

// Two pools of a shoot have one class, and the older one decides.
func TestGardenerOverheadsThatDiffer(t *testing.T) {
	w, act := seed(t, "gvisor")
	a, b := inShoot("a"), inShoot("b")
	b.Spec.ProviderConfig = settings(`{"overhead":{"memory":"64Mi"}}`)
	w.create(aPayload("gvisor", "1", "runsc"), config(t, "of-a", "reconcile", "a"), config(t, "of-b", "reconcile", "b"), a)
	w.now = w.now.Add(time.Minute)
	w.create(b)
	act(a.Name, b.Name)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "extension-runtime-gvisor-fairlead", Namespace: shootNamespace}}
	w.get(secret)
	w.wants("class", string(secret.Data["runtimeclass-gvisor.yaml"]), "memory: 32Mi")
	version := secret.ResourceVersion
	act(a.Name, b.Name)
	if w.get(secret); secret.ResourceVersion != version {
		t.Error("they fight over the class")
	}
	w.get(b)
	if e := b.Status.LastError; e == nil || !strings.Contains(e.Description, "ContainerRuntime "+shootNamespace+"/gvisor-a gives it, memory=32Mi") {
		t.Errorf("%+v", b.Status)
	}
}

// Gardener's resource manager holds a ManagedResource back until it has taken the classes
// off the shoot. A runtime that comes back meanwhile is not there by the old one, and one
// that goes is gone only with it.
func TestGardenerWaitsForWhatGoes(t *testing.T) {
	const finalizer = "resources.gardener.cloud/gardener-resource-manager"
	w, act := seed(t, "gvisor")
	name := metav1.ObjectMeta{Name: "extension-runtime-gvisor-fairlead", Namespace: shootNamespace}
	secret := &corev1.Secret{ObjectMeta: name}
	managed := of(t, `{"apiVersion":"resources.gardener.cloud/v1alpha1","kind":"ManagedResource","metadata":{"name":"`+name.Name+`","namespace":"`+shootNamespace+`"}}`)
	all := []client.Object{managed, secret}
	hold := func(with ...string) {
		t.Helper()
		for _, o := range all {
			if !w.get(o) {
				t.Fatalf("no %T", o)
			}
			o.SetFinalizers(with)
			w.must(w.client.Update(t.Context(), o))
		}
	}
	op := func(c *gardener.ContainerRuntime) string {
		if !w.get(c) {
			return "gone"
		}
		return fmt.Sprintf("%s %s: %s", c.Status.LastOperation.Type, c.Status.LastOperation.State, c.Status.LastOperation.Description)
	}
	c := inShoot("a")
	w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), config(t, "of-b", "reconcile", "b"), c)
	act(c.Name)
	hold(finalizer)
	w.must(w.client.Delete(t.Context(), c))
	act(c.Name)
	w.wants("it goes", op(c), "Delete Processing: its entries are taken out; ManagedResource "+shootNamespace+"/"+name.Name+", which has its classes, is still there and waits for its finalizers: "+finalizer)
	// Another pool wants it again: the first one need not wait any more.
	b := inShoot("b")
	w.create(b)
	act(b.Name)
	w.wants("it comes", op(b), "Create Processing: ManagedResource "+shootNamespace+"/"+name.Name+" is being deleted and waits for its finalizers: "+finalizer+"; it is made anew when it is gone")
	if len(b.Status.State.Raw) == 0 {
		t.Error("what is in the OperatingSystemConfig was forgotten")
	}
	if act(c.Name); w.get(c) {
		t.Errorf("%s is still there: %s", c.Name, op(c))
	}
	// The one goes before the other.
	w.get(managed)
	managed.SetFinalizers(nil)
	w.must(w.client.Update(t.Context(), managed))
	act(b.Name)
	w.wants("half of it is gone", op(b), "Create Processing: Secret "+shootNamespace+"/"+name.Name+" is being deleted and waits for its finalizers: "+finalizer+"; it is made anew")
	if w.get(managed) {
		t.Error("it is applied from what goes")
	}
	w.get(secret)
	secret.SetFinalizers(nil)
	w.must(w.client.Update(t.Context(), secret))
	act(b.Name)
	w.wants("all of it is gone", op(b), "Create Succeeded")
	for _, o := range all {
		if !w.get(o) || o.GetDeletionTimestamp() != nil {
			t.Errorf("%T: it was not made anew", o)
		}
	}
	// A shoot that is deleted by force is not waited for: its API server may be gone.
	hold(finalizer)
	w.must(w.client.Delete(t.Context(), b))
	act(b.Name)
	w.wants("it goes as well", op(b), "Delete Processing")
	w.create(of(t, `{"apiVersion":"extensions.gardener.cloud/v1alpha1","kind":"Cluster","metadata":{"name":"`+shootNamespace+`"},"spec":{"shoot":{"metadata":{"annotations":{"confirmation.gardener.cloud/force-deletion":"true"}}}}}`))
	if act(b.Name); w.get(b) {
		t.Errorf("%s is still there: %s", b.Name, op(b))
	}
}

// A control plane moves to another seed once no ManagedResource is left that applies
// something in the shoot. The classes stay there, and are applied from the other seed then.
func TestGardenerMigrates(t *testing.T) {
	const finalizer = "resources.gardener.cloud/gardener-resource-manager"
	w, act := seed(t, "gvisor")
	name := metav1.ObjectMeta{Name: "extension-runtime-gvisor-fairlead", Namespace: shootNamespace}
	secret := &corev1.Secret{ObjectMeta: name}
	managed := of(t, `{"apiVersion":"resources.gardener.cloud/v1alpha1","kind":"ManagedResource","metadata":{"name":"`+name.Name+`","namespace":"`+shootNamespace+`"}}`)
	a, b := inShoot("a"), inShoot("b")
	both := []*gardener.ContainerRuntime{a, b}
	w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), config(t, "of-b", "reconcile", "b"), a, b)
	order := func(what string) {
		t.Helper()
		for _, c := range both {
			w.get(c)
			c.Annotations = map[string]string{gardener.AnnotationOperation: what}
			w.must(w.client.Update(t.Context(), c))
		}
		act(a.Name, b.Name)
	}
	all := func(want string) {
		t.Helper()
		for _, c := range both {
			w.get(c)
			w.wants(c.Name, fmt.Sprintf("%s %s: %s", c.Status.LastOperation.Type, c.Status.LastOperation.State, c.Status.LastOperation.Description), want)
		}
	}
	act(a.Name, b.Name)
	all("Create Succeeded")
	w.get(managed)
	managed.SetFinalizers([]string{finalizer})
	w.must(w.client.Update(t.Context(), managed))
	order(gardener.OrderMigrate)
	all("Migrate Processing: what is on the nodes and in the cluster stays for who takes over; ManagedResource " + shootNamespace + "/" + name.Name + ", which has its classes, is still there and waits for its finalizers: " + finalizer)
	w.get(managed)
	if kept, _, _ := unstructured.NestedBool(managed.Object, "spec", "keepObjects"); !kept || managed.GetDeletionTimestamp() == nil || len(a.Finalizers) != 1 {
		t.Errorf("the classes go with it, or nobody waits: %v %v", managed.Object, a.Finalizers)
	}
	managed.SetFinalizers(nil)
	w.must(w.client.Update(t.Context(), managed))
	act(a.Name, b.Name)
	all("Migrate Succeeded: what is on the nodes")
	if w.get(managed) || w.get(secret) || len(a.Finalizers)+len(b.Finalizers) > 0 || len(a.Status.State.Raw) == 0 {
		t.Errorf("left are %v and %v, with %v", managed.Object, secret, a.Status)
	}
	u := config(t, "now", "", "")
	w.get(u)
	if text, _ := json.Marshal(u.Object["spec"]); !strings.Contains(string(text), "gvisor") {
		t.Errorf("machines lose it: %s", text)
	}
	order(gardener.OrderRestore)
	all("Restore Succeeded")
	managed.Object["spec"] = nil
	if !w.get(managed) || !w.get(secret) {
		t.Fatal("nobody applies the classes")
	}
	if kept, _, _ := unstructured.NestedBool(managed.Object, "spec", "keepObjects"); kept {
		t.Error("the classes would never go")
	}
}

// Machines that the payload has no programs for would get a handler that starts nothing.
func TestGardenerArchitecture(t *testing.T) {
	w, act := seed(t, "gvisor")
	c := inShoot("a")
	w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), c,
		of(t, `{"apiVersion":"extensions.gardener.cloud/v1alpha1","kind":"Worker","metadata":{"name":"w","namespace":"`+shootNamespace+`"},"spec":{"pools":[{"name":"b","architecture":"amd64"},{"name":"a","architecture":"arm64"}]}}`))
	act(c.Name)
	w.get(c)
	if e := c.Status.LastError; e == nil || !slices.Equal(e.Codes, []gardener.ErrorCode{gardener.CodeConfiguration}) || !strings.Contains(e.Description, "machines of pool a are arm64, and RuntimePayload gvisor has programs for amd64 only: add those for arm64 to it, or") {
		t.Errorf("%+v", c.Status)
	}
	u := config(t, "now", "", "")
	w.get(u)
	if text, _ := json.Marshal(u.Object["spec"]); strings.Contains(string(text), "gvisor") {
		t.Errorf("machines get it: %s", text)
	}
}

// What Gardener takes away within seconds, and nobody tells of, is looked for as often.
func TestGardenerLooksAgainSoon(t *testing.T) {
	w := newWorld(t)
	set := plugins.All()
	r := containerruntime.InGardener(&containerruntime.Reconciler{Client: w.client, Plugin: set.Lookup("gvisor"), Plugins: set, Now: func() time.Time { return w.now }})
	c := inShoot("a")
	c.Finalizers = []string{gardener.Finalizer}
	managed := of(t, `{"apiVersion":"resources.gardener.cloud/v1alpha1","kind":"ManagedResource","metadata":{"name":"extension-runtime-gvisor-fairlead","namespace":"`+shootNamespace+`","finalizers":["a/b"]}}`)
	w.create(c, managed)
	w.must(w.client.Delete(t.Context(), c))
	got, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	if err != nil || got.RequeueAfter == 0 || got.RequeueAfter > 5*time.Second {
		t.Errorf("%+v %v", got, err)
	}
}

// Of the Secret and the ManagedResource that apply the classes nobody tells. They are
// looked at again by and by, and come back as they were.
func TestGardenerLooksAfterClasses(t *testing.T) {
	w := newWorld(t)
	set := plugins.All()
	r := containerruntime.InGardener(&containerruntime.Reconciler{Client: w.client, Plugin: set.Lookup("gvisor"), Plugins: set, Now: func() time.Time { return w.now }})
	c := inShoot("a")
	w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), c)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "extension-runtime-gvisor-fairlead", Namespace: shootNamespace}}
	managed := of(t, `{"apiVersion":"resources.gardener.cloud/v1alpha1","kind":"ManagedResource","metadata":{"name":"extension-runtime-gvisor-fairlead","namespace":"`+shootNamespace+`"}}`)
	look := func() {
		t.Helper()
		got, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		if err != nil || got.RequeueAfter != 5*time.Minute {
			t.Errorf("%+v %v", got, err)
		}
		if !w.get(managed) || !w.get(secret) || !strings.Contains(string(secret.Data["runtimeclass-gvisor.yaml"]), "handler: runsc") {
			t.Errorf("the classes are not there: %v", secret.Data)
		}
	}
	look()
	secret.Data = nil
	w.must(w.client.Update(t.Context(), secret))
	w.must(w.client.Delete(t.Context(), managed))
	look()
	look()
}
