package podspec

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Services is what a Lookup may know beside objects that pods name: the Services of
// a namespace, for a pod. Nothing of them is changed. An error is that they are not known
// yet, and that the pod is to wait for them.
type Services interface {
	Services(pod *corev1.Pod, namespace string) ([]*corev1.Service, error)
}

// The Service of the API server, which every pod is told of.
const (
	masterNamespace = "default"
	masterName      = "kubernetes"
)

// serviceVariables are those that tell of the Services of the pod's namespace, as
// Docker's links did.
func serviceVariables(c *Context) (*variables, error) {
	vars := &variables{values: map[string]string{}}
	known, ok := c.Objects.(Services)
	if !ok {
		return vars, nil
	}
	links := c.Pod.Spec.EnableServiceLinks == nil || *c.Pod.Spec.EnableServiceLinks
	byName := map[string]*corev1.Service{}
	master, err := known.Services(c.Pod, masterNamespace)
	if err != nil {
		return nil, err
	}
	for _, s := range master {
		if s.Name == masterName && hasAddress(s) {
			byName[s.Name] = s
		}
	}
	if links {
		own, err := known.Services(c.Pod, c.Pod.Namespace)
		if err != nil {
			return nil, err
		}
		for _, s := range own {
			if hasAddress(s) {
				byName[s.Name] = s // before the API server's, should one have its name
			}
		}
	}
	list := make([]*corev1.Service, 0, len(byName))
	for _, s := range byName {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range list {
		serviceLinks(vars, s)
	}
	return vars, nil
}

func hasAddress(s *corev1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone && len(s.Spec.Ports) > 0
}

func serviceLinks(vars *variables, s *corev1.Service) {
	name, ip := variableName(s.Name), s.Spec.ClusterIP
	vars.set(name+"_SERVICE_HOST", ip)
	vars.set(name+"_SERVICE_PORT", port(s.Spec.Ports[0]))
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			vars.set(name+"_SERVICE_PORT_"+variableName(p.Name), port(p))
		}
	}
	for i, p := range s.Spec.Ports {
		protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
		url := strings.ToLower(string(protocol)) + "://" + net.JoinHostPort(ip, port(p))
		if i == 0 {
			vars.set(name+"_PORT", url)
		}
		prefix := name + "_PORT_" + port(p) + "_" + string(protocol)
		vars.set(prefix, url)
		vars.set(prefix+"_PROTO", strings.ToLower(string(protocol)))
		vars.set(prefix+"_PORT", port(p))
		vars.set(prefix+"_ADDR", ip)
	}
}

func variableName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }

func port(p corev1.ServicePort) string { return strconv.Itoa(int(p.Port)) }
