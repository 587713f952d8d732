// Package care checks the hooks and probes of the containers of manifests, by the
// rules of an API server.
//
// Beyond these, a port's name has to be that of a port of the container, which a
// kubelet finds out when it probes, and a hook that every kubelet fails is refused.
package care

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Forbidden finds the hooks and probes of an init container that is no sidecar. At
// is its path, which each message starts with.
func Forbidden(at string, ct *corev1.Container) []string {
	h := check{}
	for _, field := range []handler{
		{"lifecycle", ct.Lifecycle != nil},
		{"livenessProbe", ct.LivenessProbe != nil},
		{"readinessProbe", ct.ReadinessProbe != nil},
		{"startupProbe", ct.StartupProbe != nil},
	} {
		if field.set {
			h.add(at+"."+field.name, "may not be set for init containers without restartPolicy Always")
		}
	}
	return h.faults
}

// Check checks the hooks and probes of any other container of a pod. At is its
// path, which each message starts with.
func Check(at string, ct *corev1.Container, spec *corev1.PodSpec) []string {
	h := check{ports: ct.Ports, grace: corev1.DefaultTerminationGracePeriodSeconds}
	if g := spec.TerminationGracePeriodSeconds; g != nil {
		h.grace = *g
	}
	if l := ct.Lifecycle; l != nil {
		h.checkHook(at+".lifecycle.postStart", l.PostStart)
		h.checkHook(at+".lifecycle.preStop", l.PreStop)
	}
	h.checkProbe(at+".startupProbe", ct.StartupProbe)
	h.checkProbe(at+".livenessProbe", ct.LivenessProbe)
	h.checkProbe(at+".readinessProbe", ct.ReadinessProbe)
	h.checkOnce(at+".startupProbe", ct.StartupProbe)
	h.checkOnce(at+".livenessProbe", ct.LivenessProbe)
	if p := ct.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		h.add(at+".readinessProbe.terminationGracePeriodSeconds", "must not be set for readinessProbes")
	}
	return h.faults
}

// check checks what the hooks and probes of one container do.
type check struct {
	faults []string
	ports  []corev1.ContainerPort
	grace  int64 // of the pod, in seconds
}

func (h *check) add(path, format string, args ...any) {
	h.faults = append(h.faults, path+": "+fmt.Sprintf(format, args...))
}

// all adds the problems that one of Kubernetes' validators found with a value.
func (h *check) all(path, value string, problems []string) {
	if len(problems) > 0 {
		h.add(path, "%q: %s", value, strings.Join(problems, "; "))
	}
}

// checkOnce is for probes that have passed after one success.
func (h *check) checkOnce(at string, p *corev1.Probe) {
	if p != nil && p.SuccessThreshold > 1 {
		h.add(at+".successThreshold", "%d: must be 1", p.SuccessThreshold)
	}
}

func (h *check) checkProbe(at string, p *corev1.Probe) {
	if p == nil {
		return
	}
	h.checkOne(at, []handler{
		{"exec", p.Exec != nil}, {"httpGet", p.HTTPGet != nil}, {"tcpSocket", p.TCPSocket != nil}, {"grpc", p.GRPC != nil},
	})
	h.checkExec(at+".exec", p.Exec)
	h.checkGet(at+".httpGet", p.HTTPGet)
	if a := p.TCPSocket; a != nil {
		h.checkPort(at+".tcpSocket.port", a.Port)
	}
	if a := p.GRPC; a != nil {
		h.checkPort(at+".grpc.port", intstr.FromInt32(a.Port))
	}
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if n.value < 0 {
			h.add(at+"."+n.name, "%d: must be greater than or equal to 0", n.value)
		}
	}
	if g := p.TerminationGracePeriodSeconds; g != nil && *g <= 0 {
		h.add(at+".terminationGracePeriodSeconds", "%d: must be greater than 0", *g)
	}
}

func (h *check) checkHook(at string, l *corev1.LifecycleHandler) {
	if l == nil {
		return
	}
	h.checkOne(at, []handler{
		{"exec", l.Exec != nil}, {"httpGet", l.HTTPGet != nil}, {"tcpSocket", l.TCPSocket != nil}, {"sleep", l.Sleep != nil},
	})
	h.checkExec(at+".exec", l.Exec)
	h.checkGet(at+".httpGet", l.HTTPGet)
	if l.TCPSocket != nil {
		h.add(at+".tcpSocket", "is no hook: the API has it for old manifests, and every kubelet fails it; use exec or httpGet")
	}
	if s := l.Sleep; s != nil && (s.Seconds < 0 || s.Seconds > h.grace) {
		h.add(at+".sleep.seconds", "%d: must be non-negative and not more than terminationGracePeriodSeconds (%d)", s.Seconds, h.grace)
	}
}

// handler is one that may be set.
type handler struct {
	name string
	set  bool
}

// checkOne wants exactly one.
func (h *check) checkOne(at string, list []handler) {
	found := false
	for _, one := range list {
		if one.set && found {
			h.add(at+"."+one.name, "may not specify more than 1 handler type")
		}
		found = found || one.set
	}
	if !found {
		h.add(at, "must specify a handler type")
	}
}

func (h *check) checkExec(at string, a *corev1.ExecAction) {
	if a != nil && (len(a.Command) == 0 || a.Command[0] == "") {
		h.add(at+".command", "is required")
	}
}

func (h *check) checkGet(at string, a *corev1.HTTPGetAction) {
	if a == nil {
		return
	}
	h.checkPort(at+".port", a.Port)
	if known := []corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}; a.Scheme != "" && !slices.Contains(known, a.Scheme) {
		h.add(at+".scheme", "%q is not one of %v", a.Scheme, known)
	}
	for i, header := range a.HTTPHeaders {
		h.all(at+".httpHeaders["+strconv.Itoa(i)+"].name", header.Name, validation.IsHTTPHeaderName(header.Name))
	}
}

func (h *check) checkPort(at string, p intstr.IntOrString) {
	if p.Type == intstr.Int {
		for _, why := range validation.IsValidPortNum(p.IntValue()) {
			h.add(at, "%d: %s", p.IntValue(), why)
		}
		return
	}
	if problems := validation.IsValidPortName(p.StrVal); len(problems) > 0 {
		h.all(at, p.StrVal, problems)
		return
	}
	for _, have := range h.ports {
		if have.Name == p.StrVal {
			return
		}
	}
	h.add(at, "%q is not the name of a port of this container", p.StrVal)
}
