package manifest

import (
	"fmt"
	"runtime"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/manifest/check"
	"fairlead.run/internal/node/manifest/honoured"
	"fairlead.run/internal/node/manifest/template"
)

// sound reports what is wrong with an object, and says whether nothing is.
func (d *decoder) sound(t *target, found ...[]string) bool {
	before := len(d.faults)
	for _, list := range found {
		for _, why := range list {
			d.fault(t, why)
		}
	}
	return len(d.faults) == before
}

// expand adds the pods that an object stands for.
func (d *decoder) expand(t *target, o metav1.Object, pods []*corev1.Pod) {
	if !d.add(t) {
		return
	}
	d.objects.Shown = append(d.objects.Shown, Shown{Kind: t.kind, Object: o})
	origin := t.origin(t.doc.first())
	for _, pod := range pods {
		if !d.claim(t, "Pod", &pod.ObjectMeta, "its pod "+pod.Name+" ") {
			return
		}
		d.objects.Pods = append(d.objects.Pods, &Pod{Pod: pod, Origin: origin, Source: t.doc.source, Owner: t.meta.Name, OwnerKind: t.kind})
	}
}

func (d *decoder) deployment(doc *document, table []honoured.Field, version string) {
	dep := &appsv1.Deployment{}
	t := &target{doc, "Deployment", &dep.ObjectMeta}
	ok := false
	if version == "apps/v1" {
		ok = d.into(t, table, dep)
	} else {
		old := &extensionsv1beta1.Deployment{}
		t.meta = &old.ObjectMeta
		ok = d.into(t, table, old)
		dep.ObjectMeta, dep.Spec = old.ObjectMeta, appsv1.DeploymentSpec{
			Replicas: old.Spec.Replicas, Selector: old.Spec.Selector, Template: old.Spec.Template,
		}
		if dep.Spec.Selector == nil {
			dep.Spec.Selector = &metav1.LabelSelector{MatchLabels: dep.Spec.Template.Labels}
		}
	}
	r := check.Replicated{Kind: "Deployment", Replicas: dep.Spec.Replicas, Most: MaxPods, Selector: dep.Spec.Selector, Template: &dep.Spec.Template}
	if ok && d.sound(t, r.Check()) {
		d.expand(t, dep, template.Replicas(&dep.ObjectMeta, &dep.Spec.Template, template.Number(dep.Spec.Replicas, 1)))
	}
}

func (d *decoder) replicaSet(doc *document, table []honoured.Field, _ string) {
	set := &appsv1.ReplicaSet{}
	t := &target{doc, "ReplicaSet", &set.ObjectMeta}
	if !d.into(t, table, set) {
		return
	}
	r := check.Replicated{Kind: "ReplicaSet", Replicas: set.Spec.Replicas, Most: MaxPods, Selector: set.Spec.Selector, Template: &set.Spec.Template}
	if d.sound(t, r.Check()) {
		d.expand(t, set, template.Replicas(&set.ObjectMeta, &set.Spec.Template, template.Number(set.Spec.Replicas, 1)))
	}
}

func (d *decoder) daemonSet(doc *document, table []honoured.Field, _ string) {
	set := &appsv1.DaemonSet{}
	t := &target{doc, "DaemonSet", &set.ObjectMeta}
	if !d.into(t, table, set) {
		return
	}
	r := check.Replicated{Kind: "DaemonSet", Selector: set.Spec.Selector, Template: &set.Spec.Template}
	if d.sound(t, r.Check()) {
		d.expand(t, set, template.Replicas(&set.ObjectMeta, &set.Spec.Template, 1)) // there is one node
	}
}

func (d *decoder) statefulSet(doc *document, table []honoured.Field, _ string) {
	set := &appsv1.StatefulSet{}
	t := &target{doc, "StatefulSet", &set.ObjectMeta}
	if !d.into(t, table, set) {
		return
	}
	first := set.Spec.Template.DeepCopy()
	template.AddClaims(&first.Spec, set, set.Name+"-0")
	r := check.Replicated{Kind: "StatefulSet", Replicas: set.Spec.Replicas, Most: MaxPods, Selector: set.Spec.Selector, Template: first}
	if d.sound(t, r.Check(), check.StatefulSet(set)) {
		d.workload(t, &Workload{StatefulSet: set})
	}
}

func (d *decoder) job(doc *document, table []honoured.Field, _ string) {
	job := &batchv1.Job{}
	t := &target{doc, "Job", &job.ObjectMeta}
	if d.into(t, table, job) && d.sound(t, check.Job("", &job.Spec, MaxPods)) {
		d.workload(t, &Workload{Job: job})
	}
}

func (d *decoder) cronJob(doc *document, table []honoured.Field, _ string) {
	c := &batchv1.CronJob{}
	t := &target{doc, "CronJob", &c.ObjectMeta}
	if d.into(t, table, c) && d.sound(t, check.CronJob(c, MaxPods)) {
		d.workload(t, &Workload{CronJob: c})
	}
}

func (d *decoder) workload(t *target, w *Workload) {
	if !d.add(t) {
		return
	}
	w.Kind, w.Origin, w.Source = t.kind, t.origin(t.doc.first()), t.doc.source
	for _, pod := range w.fixed() {
		if !d.claim(t, "Pod", &pod.ObjectMeta, "its pod "+pod.Name+" ") {
			return
		}
	}
	d.objects.Workloads = append(d.objects.Workloads, w)
}

// fixed are its pods whose names another object may have, too: those of Jobs have names that
// nobody else has.
func (w *Workload) fixed() []*corev1.Pod {
	if w.StatefulSet == nil {
		return nil
	}
	return template.StatefulSet(w.StatefulSet)
}

// without is the workload without pods of whose names others are.
func (w *Workload) without(lost map[string]bool) *Workload {
	out := *w
	out.Taken = slices.Clone(w.Taken)
	for _, p := range w.fixed() {
		if lost[id("Pod", Key{p.Namespace, p.Name})] {
			out.Taken = append(out.Taken, p.Name)
		}
	}
	return &out
}

func (d *decoder) persistentVolumeClaim(doc *document, table []honoured.Field, _ string) {
	c := &corev1.PersistentVolumeClaim{}
	t := &target{doc, "PersistentVolumeClaim", &c.ObjectMeta}
	if d.into(t, table, c) && d.sound(t, check.Claim(c)) && d.add(t) {
		d.objects.Claims[Key{c.Namespace, c.Name}] = c
	}
}

// foreground makes pods of what a run in the foreground can do, and says what it
// cannot.
func (o *Objects) foreground() []error {
	var faults []error
	add := func(origin, format string, args ...any) {
		faults = append(faults, invalid("%s: %s", origin, fmt.Sprintf(format, args...)))
	}
	for _, p := range o.Pods {
		for _, why := range passing(&p.Spec) {
			add(p.Origin, "%s", why)
		}
	}
	for _, w := range o.Workloads {
		var pods []*corev1.Pod
		switch {
		case w.CronJob != nil:
			add(w.Origin, "fairlead run ends with its pods and follows no schedule; put the file into a folder and use fairlead up --manifests FOLDER")
		case w.Job != nil:
			why := ""
			if pods, why = atOnce(w.Job); why != "" {
				add(w.Origin, "%s", why)
			}
			if w.Job.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyNever && (template.Number(w.Job.Spec.BackoffLimit, 0) > 0 || w.Job.Spec.PodFailurePolicy != nil) {
				o.Notes = append(o.Notes, w.Origin+": fairlead run does not replace a pod that failed; fairlead up does, up to the backoffLimit")
			}
		case w.StatefulSet != nil:
			pods = template.StatefulSet(w.StatefulSet)
			if len(pods) > 1 && w.StatefulSet.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
				o.Notes = append(o.Notes, w.Origin+": fairlead run starts its pods at once; fairlead up one after the other")
			}
		}
		if len(pods) > 0 {
			for _, why := range passing(&pods[0].Spec) {
				add(w.Origin, "spec.template.%s", why)
			}
		}
		for _, pod := range pods {
			c := claim{where: w.Origin, what: w.Origin + ": its pod " + pod.Name + " "}
			err := o.claim(id("Pod", Key{pod.Namespace, pod.Name}), c)
			if err != nil && w.StatefulSet == nil { // whose pods have their names already
				faults = append(faults, err)
				continue
			}
			o.Pods = append(o.Pods, &Pod{Pod: pod, Origin: w.Origin, Source: w.Source, Owner: w.Key().Name, OwnerKind: w.Kind})
		}
	}
	o.Workloads = nil
	if len(o.Pods) > MaxPods {
		faults = append(faults, invalid("the manifests ask for %d pods; the most is %d", len(o.Pods), MaxPods))
	}
	return faults
}

// passing says what of a pod needs somebody who stays: volumes that are kept, and what
// somebody has to look at, now and then or before it begins.
func passing(spec *corev1.PodSpec) (faults []string) {
	add := func(path, why string) { faults = append(faults, "spec."+path+": fairlead run "+why) }
	for i, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			add(fmt.Sprintf("volumes[%d].persistentVolumeClaim", i), "keeps nothing when it ends; use fairlead up, or a hostPath")
		}
		if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.Medium == corev1.StorageMediumDefault {
			add(fmt.Sprintf("volumes[%d].emptyDir.sizeLimit", i), "honours it for medium Memory and HugePages only; use fairlead up, or remove it")
		}
	}
	for list, containers := range map[string][]corev1.Container{"initContainers": spec.InitContainers, "containers": spec.Containers} {
		for i := range containers {
			if _, limited := containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; limited {
				add(fmt.Sprintf("%s[%d].resources.limits.ephemeral-storage", list, i), "ends no pod that goes past it; use fairlead up, or remove it")
			}
		}
	}
	for key, value := range spec.NodeSelector {
		if has := map[string]string{corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH}[key]; value != has {
			add("nodeSelector", "does not know this machine as "+key+"="+value+"; use fairlead up, or remove it")
		}
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		add("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", "looks at no labels; use fairlead up, or remove it")
	}
	slices.Sort(faults)
	return faults
}

// atOnce makes all pods of a Job, or says why they cannot run at once.
func atOnce(job *batchv1.Job) (pods []*corev1.Pod, why string) {
	parallel := template.Number(job.Spec.Parallelism, 1)
	n := template.Number(job.Spec.Completions, parallel)
	switch {
	case job.Spec.Suspend != nil && *job.Spec.Suspend, parallel == 0:
		return nil, ""
	case n > parallel:
		return nil, fmt.Sprintf("spec.parallelism: fairlead run starts all %d pods at once, and not %d; make it %d, or use fairlead up", n, parallel, n)
	}
	for i := range n {
		p := template.JobPod(job, fmt.Sprintf("%s-%d", job.Name, i), i)
		if d := job.Spec.ActiveDeadlineSeconds; d != nil {
			least := max(*d, 1)
			if own := p.Spec.ActiveDeadlineSeconds; own != nil {
				least = min(least, *own)
			}
			p.Spec.ActiveDeadlineSeconds = &least
		}
		pods = append(pods, p)
	}
	return pods, ""
}
