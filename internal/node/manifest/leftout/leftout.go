// Package leftout has the kinds of objects that manifests of a cluster hold beside pods,
// and that nothing acts on where there is one machine. They are left out with a note.
//
// A kind belongs here if pods do what their manifests say without it. Kinds that would
// have refused something say so (Guards), as what they were to keep out comes in. A kind
// without which other pods would run, or the same ones with other data, does not: it stays
// unknown, which is an error.
package leftout

import (
	"slices"
	"strings"
)

// Kind is one of them.
type Kind struct {
	Group    string // of its API; empty for that of pods
	Name     string
	Plural   string
	Short    string // as people call it; may be empty
	Unspaced bool   // is in no namespace
	Why      string // what is not done
	// Guards says that something would be refused, or changed, by it.
	Guards bool
}

// What several kinds have in common.
const (
	noRoutes    = "nothing routes to pods from outside; use their addresses or a hostPort"
	noServer    = "there is no API server here at which it would allow anything"
	noServices  = "there are no Services here that it would belong to"
	noMonitor   = "no monitoring here is told of it"
	notRefused  = "what it would refuse is NOT refused"
	notChanged  = "what it would change is NOT changed"
	noIssuer    = "nobody here issues certificates; write the Secrets that pods use"
	gateway     = "gateway.networking.k8s.io"
	network     = "networking.k8s.io"
	access      = "rbac.authorization.k8s.io"
	admission   = "admissionregistration.k8s.io"
	monitoring  = "monitoring.coreos.com"
	certManager = "cert-manager.io"
)

// kinds are all of them.
var kinds = slices.Concat([]Kind{
	{Group: network, Name: "Ingress", Plural: "ingresses", Short: "ing", Why: noRoutes},
	{Group: "extensions", Name: "Ingress", Plural: "ingresses", Short: "ing", Why: noRoutes},
	{Group: network, Name: "IngressClass", Plural: "ingressclasses", Unspaced: true, Why: noRoutes},
	{Group: "", Name: "Endpoints", Plural: "endpoints", Short: "ep", Why: noServices},
	{Group: "discovery.k8s.io", Name: "EndpointSlice", Plural: "endpointslices", Why: noServices},
	{Group: "policy", Name: "PodDisruptionBudget", Plural: "poddisruptionbudgets", Short: "pdb", Why: "nothing here drains the machine, and evictions for want of memory or disk heed no budget, as in a cluster"},
	{Group: "autoscaling", Name: "HorizontalPodAutoscaler", Plural: "horizontalpodautoscalers", Short: "hpa", Why: "there stay as many pods as spec.replicas of its target says, or 1 if that says nothing"},
	{Group: "autoscaling.k8s.io", Name: "VerticalPodAutoscaler", Plural: "verticalpodautoscalers", Short: "vpa", Why: "requests of pods stay as they are written"},
	{Group: "storage.k8s.io", Name: "StorageClass", Plural: "storageclasses", Short: "sc", Unspaced: true, Why: "claims are folders of this machine, whatever their class, and stay when claims go"},
	{Group: "apiextensions.k8s.io", Name: "CustomResourceDefinition", Plural: "customresourcedefinitions", Short: "crd", Unspaced: true, Why: "nobody here acts on objects of its kind; those beside it are left out, too"},
	{Group: "apiregistration.k8s.io", Name: "APIService", Plural: "apiservices", Unspaced: true, Why: "there is no API server here that it would extend"},
	{Group: network, Name: "NetworkPolicy", Plural: "networkpolicies", Short: "netpol", Guards: true, Why: "traffic that it would refuse is NOT refused"},
	{Group: "extensions", Name: "NetworkPolicy", Plural: "networkpolicies", Short: "netpol", Guards: true, Why: "traffic that it would refuse is NOT refused"},
	{Group: "", Name: "ResourceQuota", Plural: "resourcequotas", Short: "quota", Guards: true, Why: "what the pods of its namespace use together is NOT limited"},
	{Group: "", Name: "LimitRange", Plural: "limitranges", Short: "limits", Guards: true, Why: "containers without requests and limits are NOT given any, and none is refused; write them into the pods"},
	{Group: "policy", Name: "PodSecurityPolicy", Plural: "podsecuritypolicies", Short: "psp", Unspaced: true, Guards: true, Why: notRefused},
}, group(gateway, noRoutes, []Kind{
	{Name: "GatewayClass", Plural: "gatewayclasses", Short: "gc", Unspaced: true},
	{Name: "Gateway", Plural: "gateways", Short: "gtw"},
	{Name: "HTTPRoute", Plural: "httproutes"},
	{Name: "GRPCRoute", Plural: "grpcroutes"},
	{Name: "TLSRoute", Plural: "tlsroutes"},
	{Name: "TCPRoute", Plural: "tcproutes"},
	{Name: "UDPRoute", Plural: "udproutes"},
	{Name: "ReferenceGrant", Plural: "referencegrants"},
	{Name: "BackendTLSPolicy", Plural: "backendtlspolicies"},
}), group(access, noServer, []Kind{
	{Name: "Role", Plural: "roles"},
	{Name: "RoleBinding", Plural: "rolebindings"},
	{Name: "ClusterRole", Plural: "clusterroles", Unspaced: true},
	{Name: "ClusterRoleBinding", Plural: "clusterrolebindings", Unspaced: true},
}), group(admission, "", []Kind{
	{Name: "ValidatingAdmissionPolicy", Plural: "validatingadmissionpolicies", Unspaced: true, Guards: true, Why: notRefused},
	{Name: "ValidatingAdmissionPolicyBinding", Plural: "validatingadmissionpolicybindings", Unspaced: true, Guards: true, Why: notRefused},
	{Name: "ValidatingWebhookConfiguration", Plural: "validatingwebhookconfigurations", Unspaced: true, Guards: true, Why: notRefused},
	{Name: "MutatingAdmissionPolicy", Plural: "mutatingadmissionpolicies", Unspaced: true, Guards: true, Why: notChanged},
	{Name: "MutatingAdmissionPolicyBinding", Plural: "mutatingadmissionpolicybindings", Unspaced: true, Guards: true, Why: notChanged},
	{Name: "MutatingWebhookConfiguration", Plural: "mutatingwebhookconfigurations", Unspaced: true, Guards: true, Why: notChanged},
}), group(monitoring, noMonitor, []Kind{
	{Name: "ServiceMonitor", Plural: "servicemonitors", Short: "smon"},
	{Name: "PodMonitor", Plural: "podmonitors", Short: "pmon"},
	{Name: "Probe", Plural: "probes", Short: "prb"},
	{Name: "ScrapeConfig", Plural: "scrapeconfigs", Short: "scfg"},
	{Name: "PrometheusRule", Plural: "prometheusrules", Short: "promrule"},
	{Name: "AlertmanagerConfig", Plural: "alertmanagerconfigs", Short: "amcfg"},
}), group(certManager, noIssuer, []Kind{
	{Name: "Certificate", Plural: "certificates", Short: "cert"},
	{Name: "Issuer", Plural: "issuers"},
	{Name: "ClusterIssuer", Plural: "clusterissuers", Unspaced: true},
}))

// group puts kinds into a group, with what is not done where they do not say.
func group(name, why string, list []Kind) []Kind {
	for i := range list {
		list[i].Group = name
		if list[i].Why == "" {
			list[i].Why = why
		}
	}
	return list
}

// All are all kinds, in the order in which they are told.
func All() []Kind { return slices.Clone(kinds) }

// Find finds a kind by its API version, of which the group alone counts.
func Find(version, name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name && k.Group == Group(version) })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Named finds a kind by its name alone.
func Named(name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Group is that of an API version; empty for the one without a name.
func Group(version string) string {
	group, _, named := strings.Cut(version, "/")
	if !named {
		return ""
	}
	return group
}

// Refused says what to do in the place of kinds that people may take for some that are left
// out, and that are not, as other pods would run, or the same ones with other data.
func Refused(kind string) string {
	switch kind {
	case "PersistentVolume":
		return "; a claim is a folder of this machine: for data that is elsewhere use a hostPath volume in the pod"
	case "ReplicationController":
		return "; write a Deployment or ReplicaSet"
	}
	return ""
}
