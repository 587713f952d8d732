package containerruntime

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/validate"
)

// patience is how long a pod may take to begin, to be done or to end, or a DaemonSet to
// make it. Who waits is told afterwards.
const patience = 5 * time.Minute

// failure is what went wrong on a node: what an installer said of its last attempt, or
// what keeps it from one.
type failure struct {
	node, says string
	permanent  bool
}

// failures are what is wrong with pods, some of which the nodes wait for.
func (e *onNodes) failures(pods []corev1.Pod, waiting []corev1.Node) []failure {
	of := map[string]*corev1.Node{}
	for i := range waiting {
		of[waiting[i].Name] = &waiting[i]
	}
	var out []failure
	for i := range pods {
		p := &pods[i]
		where := p.Spec.NodeName
		if where == "" {
			where = "pod " + p.Name
		}
		if says, permanent := e.trouble(p, of[p.Spec.NodeName]); says != "" {
			out = append(out, failure{where, where + ": " + says, permanent})
		}
	}
	slices.SortFunc(out, func(a, b failure) int {
		return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.says, b.says))
	})
	return out
}

// trouble is what is wrong with a pod, or "", and n the node that waits for it, if there
// is one. Only its own result can be permanent: what a kubelet says may be another thing
// the next minute.
func (e *onNodes) trouble(p *corev1.Pod, n *corev1.Node) (says string, permanent bool) {
	sign, r := nodes.Read(p)
	switch {
	case r != nil && r.Reason != "":
		return fmt.Sprintf("%s: %s", r.Reason, r.Message), r.Reason.Permanent()
	case p.DeletionTimestamp != nil && n != nil:
		return e.lingers(p), false
	case p.DeletionTimestamp != nil:
		return "", false
	case sign.Done:
		return "", false
	case p.Status.Phase == corev1.PodFailed && p.Status.Reason != "":
		return join(p.Status.Reason, p.Status.Message), false // it was evicted, or not taken
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if says := held(s.State.Waiting); says != "" {
			return says, false
		}
		// Pods of a node that is away are not ready, whatever they do.
		if run := s.State.Running; run != nil && n != nil && nodes.Alive(n) && e.now().Sub(unreadySince(p, run)) >= patience {
			return fmt.Sprintf("its installer has not been done for more than %s; look at its log: kubectl logs -n %s %s", minutes(patience), p.Namespace, p.Name), false
		}
		for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if end != nil && (r == nil || end.ExitCode != 0) {
				return join(fmt.Sprintf("its installer ended with %d %s and left no result", end.ExitCode, end.Reason), end.Message), false
			}
		}
	}
	if begun := p.Status.Phase != corev1.PodPending && p.Status.Phase != ""; begun || e.now().Sub(p.CreationTimestamp.Time) < patience {
		return "", false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return join("its installer is not scheduled", c.Message), false
		}
	}
	return fmt.Sprintf("its installer has not begun for more than %s; look at the events of its pod: kubectl describe pod -n %s %s", minutes(patience), p.Namespace, p.Name), false
}

// unreadySince is since when a pod that runs has not been ready.
func unreadySince(p *corev1.Pod, run *corev1.ContainerStateRunning) time.Time {
	since := run.StartedAt.Time
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// lingers is that a pod does not end, so that nothing comes after it.
func (e *onNodes) lingers(p *corev1.Pod) string {
	if e.now().Sub(p.DeletionTimestamp.Time) < patience {
		return ""
	}
	return fmt.Sprintf("its installer's pod %s/%s was to end more than %s ago and has not; if the node does not come back, delete its object", p.Namespace, p.Name, minutes(patience))
}

// turns says how many nodes wait for another release, and which ones they wait for.
func (e *onNodes) turns(ctx context.Context, c *gardener.ContainerRuntime, members []corev1.Node, verified map[string]bool) (string, error) {
	var pods corev1.PodList
	fits := client.MatchingLabels{names.Pool: c.Spec.WorkerPool.Name, names.Work: string(names.Install)}
	if err := e.client.List(ctx, &pods, client.InNamespace(c.Namespace), fits); err != nil {
		return "", fmt.Errorf("list the installer's pods: %w", err)
	}
	unready := map[string]bool{}
	for i := range pods.Items {
		if p := &pods.Items[i]; !nodes.Ready(p) {
			unready[p.Spec.NodeName] = true
		}
	}
	waiting, before := 0, []string{}
	for i := range members {
		switch n := &members[i]; {
		case !nodes.Alive(n):
			before = append(before, n.Name+" (does not answer)")
		case unready[n.Name]:
			before = append(before, n.Name)
		case !verified[n.Name]:
			waiting++
		}
	}
	switch slices.Sort(before); {
	case waiting == 0:
		return "", nil
	case len(before) == 0:
		return fmt.Sprintf("; %d nodes wait for their turn", waiting), nil
	}
	return fmt.Sprintf("; %d nodes wait for their turn until these are ready: %s", waiting, classes.Some(before)), nil
}

// held is why a container does not begin, if that is more than that it is about to.
func held(w *corev1.ContainerStateWaiting) string {
	if w == nil || slices.Contains([]string{"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"}, w.Reason) {
		return "" // after a crash its end says more
	}
	return join(w.Reason, w.Message)
}

func join(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

func minutes(d time.Duration) string { return fmt.Sprintf("%d minutes", int(d.Minutes())) }

// unmade are the nodes that have waited too long for a pod of a DaemonSet: something
// refuses it, which is said in events that nobody reads here. Since when each waits is
// known from looks before.
func (e *onNodes) unmade(namespace, set string, waiting []corev1.Node, pods []corev1.Pod) []failure {
	has, since := map[string]bool{}, map[string]time.Time{}
	for i := range pods {
		// A scheduler takes its time: a pod without a node may be for any of them.
		if has[pods[i].Spec.NodeName] = true; pods[i].Spec.NodeName == "" {
			waiting = nil
		}
	}
	var out []failure
	for i := range waiting {
		n := waiting[i].Name
		if has[n] {
			continue
		}
		at, known := e.since[set][n]
		if !known {
			at = e.now()
		}
		since[n] = at
		if e.now().Sub(at) >= patience {
			out = append(out, failure{node: n, says: fmt.Sprintf("%s: there has been no pod for it for more than %s: a quota, Pod Security or a webhook may refuse it; look at the events: kubectl describe daemonset -n %s %s", n, minutes(patience), namespace, set)})
		}
	}
	delete(e.since, set)
	if len(since) > 0 {
		e.since[set] = since
	}
	return out
}

// contested are the nodes on which the runtime is for the pool of another object, that
// chooses them as well: it keeps them, and nothing else would say so.
func (e *onNodes) contested(ctx context.Context, t *task, members []corev1.Node) ([]failure, error) {
	var all gardener.ContainerRuntimeList
	if err := e.client.List(ctx, &all, client.InNamespace(t.object.Namespace)); err != nil {
		return nil, fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	var out []failure
	for i := range members {
		n := &members[i]
		phase, pool := names.ReadPhase(n.Labels[names.Phase+t.about.Type])
		at := slices.IndexFunc(placed.All(all.Items), func(o gardener.ContainerRuntime) bool {
			selector, err := metav1.LabelSelectorAsSelector(&o.Spec.WorkerPool.Selector)
			return o.Spec.WorkerPool.Name == pool && o.DeletionTimestamp == nil && err == nil && selector.Matches(labels.Set(n.Labels))
		})
		if phase == names.Install && pool != t.object.Spec.WorkerPool.Name && at >= 0 {
			o := &all.Items[at]
			out = append(out, failure{n.Name, fmt.Sprintf("%s: ContainerRuntime %s/%s chooses it, too, and has it: tell the two apart by spec.workerPool.selector", n.Name, o.Namespace, o.Name), true})
		}
	}
	return out, nil
}

// misfits are the nodes that the runtime does not go to, as it has no programs for them.
func misfits(all []corev1.Node, of validate.Machines) []failure {
	var out []failure
	for i := range all {
		if says, do := of.Misfit(&all[i]); says != "" {
			out = append(out, failure{all[i].Name, says + ": " + do, true})
		}
	}
	return out
}

// sum is one error of many. If all of them are such that trying again does not help,
// so is it.
func (e *onNodes) sum(all []failure, says string) error {
	var texts []string
	code := gardener.CodeConfiguration
	for _, f := range all {
		texts = append(texts, f.says)
		if !f.permanent {
			code = gardener.CodeRetryable
		}
	}
	return problem{fmt.Errorf("%s; it failed on %d: %s", says, len(all), classes.Some(texts)), code}
}
