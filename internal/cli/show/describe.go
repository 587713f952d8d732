package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are what a description is made of.
type Facts struct {
	Object metav1.Object
	Why    string // what keeps a pod from being ready, as its agent says
	// Handler is that of the pod's RuntimeClass; empty if the class is not known.
	Handler string
	Events  []corev1.Event // about the object
	Now     time.Time
}

// Describe writes all that a person may want to know of an object: of a pod at length, and
// of others what their tables have.
func (k Kind) Describe(w io.Writer, f Facts) error {
	p := &page{to: tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	p.line(0, "Name", f.Object.GetName())
	p.line(0, "Namespace", f.Object.GetNamespace())
	p.line(0, "Labels", pairs(f.Object.GetLabels()))
	p.line(0, "Annotations", pairs(f.Object.GetAnnotations()))
	if pod, ok := f.Object.(*corev1.Pod); ok {
		p.pod(pod, f)
	} else {
		table := k.Table([]metav1.Object{f.Object}, Options{Wide: true, Now: f.Now})
		for i, head := range table[0][1:] {
			p.line(0, head[:1]+strings.ToLower(head[1:]), table[1][i+1])
		}
	}
	p.events(f.Events, f.Now)
	return p.to.Flush()
}

// page is a description while it is written.
type page struct{ to *tabwriter.Writer }

// line writes a name and what it has, unless that is nothing.
func (p *page) line(depth int, name, text string) {
	if text != "" {
		_, _ = fmt.Fprintf(p.to, "%s%s:\t%s\n", strings.Repeat("  ", depth), name, breaks.Replace(text))
	}
}

// head begins a part.
func (p *page) head(depth int, name string) {
	_, _ = fmt.Fprintf(p.to, "%s%s:\n", strings.Repeat("  ", depth), name)
}

// breaks would move what follows to another place.
var breaks = strings.NewReplacer("\n", `\n`, "\t", `\t`)

func pairs(of map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		out = append(out, k+"="+of[k])
	}
	return strings.Join(out, ", ")
}

func (p *page) pod(o *corev1.Pod, f Facts) {
	p.line(0, "Node", o.Spec.NodeName)
	if t := o.Status.StartTime; t != nil {
		p.line(0, "Start Time", t.UTC().Format(time.RFC3339))
	}
	p.line(0, "Status", Status(o))
	p.line(0, "Reason", o.Status.Reason)
	p.line(0, "Message", o.Status.Message)
	if why := Why(o, f.Why); o.Status.Reason == "" {
		p.line(0, "Why", why)
	}
	var ips []string
	for _, ip := range o.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	p.line(0, "IPs", strings.Join(ips, ", "))
	if o.Spec.Priority != nil {
		p.line(0, "Priority", fmt.Sprint(*o.Spec.Priority))
	}
	p.line(0, "Priority Class", o.Spec.PriorityClassName)
	p.line(0, "QoS Class", string(o.Status.QOSClass))
	if r := o.Spec.Resources; r != nil {
		p.line(0, "Requests", resourceList(r.Requests))
		p.line(0, "Limits", resourceList(r.Limits))
	}
	p.line(0, "Runtime Class", value(o.Spec.RuntimeClassName))
	p.line(0, "Handler", f.Handler)
	p.containers("Init Containers", o.Spec.InitContainers, o.Status.InitContainerStatuses)
	p.containers("Containers", o.Spec.Containers, o.Status.ContainerStatuses)
	if len(o.Status.Conditions) > 0 {
		p.head(0, "Conditions")
	}
	for _, c := range o.Status.Conditions {
		p.line(1, string(c.Type), joined(string(c.Status), c.Reason, c.Message))
	}
	if len(o.Spec.Volumes) > 0 {
		p.head(0, "Volumes")
	}
	for i := range o.Spec.Volumes {
		p.line(1, o.Spec.Volumes[i].Name, volume(&o.Spec.Volumes[i]))
	}
}

func (p *page) containers(name string, list []corev1.Container, states []corev1.ContainerStatus) {
	if len(list) > 0 {
		p.head(0, name)
	}
	for i := range list {
		c := &list[i]
		p.head(1, c.Name)
		p.line(2, "Image", c.Image)
		p.line(2, "Command", strings.Join(slices.Concat(c.Command, c.Args), " "))
		if st := statusOf(states, c.Name); st != nil {
			p.line(2, "Container ID", st.ContainerID)
			p.line(2, "State", state(st.State))
			p.line(2, "Last State", state(st.LastTerminationState))
			p.line(2, "Ready", fmt.Sprint(st.Ready))
			p.line(2, "Restart Count", fmt.Sprint(st.RestartCount))
		}
		p.line(2, "Requests", resourceList(c.Resources.Requests))
		p.line(2, "Limits", resourceList(c.Resources.Limits))
		p.line(2, "Startup", probe(c.StartupProbe))
		p.line(2, "Liveness", probe(c.LivenessProbe))
		p.line(2, "Readiness", probe(c.ReadinessProbe))
		p.line(2, "Environment", environment(c))
		for _, m := range c.VolumeMounts {
			p.line(2, "Mount", mount(m))
		}
	}
}

// joined leaves out what is empty.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return joined("Waiting", s.Waiting.Reason, s.Waiting.Message)
	case s.Running != nil:
		return "Running since " + s.Running.StartedAt.UTC().Format(time.RFC3339)
	case s.Terminated != nil:
		t := s.Terminated
		return joined("Terminated", t.Reason, fmt.Sprintf("exit code %d at %s", t.ExitCode, t.FinishedAt.UTC().Format(time.RFC3339)), strings.TrimSpace(t.Message))
	}
	return ""
}

func probe(p *corev1.Probe) string {
	if p == nil {
		return ""
	}
	what := ""
	switch {
	case p.Exec != nil:
		what = "exec " + strings.Join(p.Exec.Command, " ")
	case p.HTTPGet != nil:
		what = fmt.Sprintf("http-get port %s, path %s", p.HTTPGet.Port.String(), p.HTTPGet.Path)
	case p.TCPSocket != nil:
		what = "tcp-socket port " + p.TCPSocket.Port.String()
	case p.GRPC != nil:
		what = fmt.Sprintf("grpc port %d", p.GRPC.Port)
	}
	return fmt.Sprintf("%s; delay %ds, timeout %ds, period %ds, successes %d, failures %d", what,
		p.InitialDelaySeconds, max(p.TimeoutSeconds, 1), orDefault(p.PeriodSeconds, 10), max(p.SuccessThreshold, 1), orDefault(p.FailureThreshold, 3))
}

func orDefault(n, otherwise int32) int32 {
	if n == 0 {
		return otherwise
	}
	return n
}

// environment has names alone: values may be secrets.
func environment(c *corev1.Container) string {
	var out []string
	for _, e := range c.Env {
		out = append(out, e.Name)
	}
	for _, e := range c.EnvFrom {
		switch {
		case e.ConfigMapRef != nil:
			out = append(out, "all of configmap "+e.ConfigMapRef.Name)
		case e.SecretRef != nil:
			out = append(out, "all of secret "+e.SecretRef.Name)
		}
	}
	return strings.Join(out, ", ")
}

func mount(m corev1.VolumeMount) string {
	text := m.MountPath + " from " + m.Name
	if sub := m.SubPath + m.SubPathExpr; sub != "" {
		text += ", path " + sub
	}
	if m.ReadOnly {
		text += ", read-only"
	}
	return text
}

func volume(v *corev1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		text := joined("emptyDir", string(v.EmptyDir.Medium))
		if v.EmptyDir.SizeLimit != nil {
			text += ", up to " + v.EmptyDir.SizeLimit.String()
		}
		return text
	case v.HostPath != nil:
		return "hostPath: " + v.HostPath.Path
	case v.ConfigMap != nil:
		return "configMap: " + v.ConfigMap.Name
	case v.Secret != nil:
		return "secret: " + v.Secret.SecretName
	case v.PersistentVolumeClaim != nil:
		return "persistentVolumeClaim: " + v.PersistentVolumeClaim.ClaimName
	case v.Projected != nil:
		return "projected"
	case v.DownwardAPI != nil:
		return "downwardAPI"
	case v.Image != nil:
		return "image: " + v.Image.Reference
	}
	return "of another kind"
}

func (p *page) events(list []corev1.Event, now time.Time) {
	if len(list) == 0 {
		return
	}
	p.head(0, "Events")
	for _, e := range list {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		_, _ = fmt.Fprintf(p.to, "  %s ago%s\t%s\t%s\t%s\n", Age(now.Sub(e.LastTimestamp.Time)), times, e.Type, e.Reason, breaks.Replace(e.Message))
	}
}
