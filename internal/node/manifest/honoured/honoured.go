package honoured

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fairlead.run/internal/node/manifest/fields"
)

// Field is a field that Fairlead honours.
type Field struct {
	// Path names it, as in "spec.containers[].image". What is below it is
	// honoured too, unless longer paths say which parts.
	Path string
	// Only are the values that are honoured; empty means all.
	Only []string
	// Note says what a reader of the user guide should know.
	Note string
	// Idle is why the field means nothing on one machine. It is left out with a note then.
	Idle string
}

// oneMachine is why nothing is scheduled here.
const oneMachine = "there is one machine"

// podFields is the table for Pods, and for the templates of Deployments.
var podFields = slices.Concat(
	[]Field{
		{Path: "metadata.labels"},
		{Path: "metadata.annotations", Note: "kubernetes.io/ingress-bandwidth and egress-bandwidth limit the pod's traffic; a handler is passed those that its pod_annotations name; others change nothing"},

		{Path: "spec.runtimeClassName", Note: "the class must be in one of the files; without it the default class, or else the default handler, runs the pod"},
		{Path: "spec.overhead", Note: "comes from the class, and is added to the limits of the pod's cgroup; if written, it must be the same"},
		{Path: "spec.restartPolicy", Note: "with the kubelet's backoff; with --detach nobody restarts"},
		{Path: "spec.terminationGracePeriodSeconds"},
		{Path: "spec.activeDeadlineSeconds"},
		{Path: "spec.dnsPolicy", Note: "no cluster DNS exists: ClusterFirst means the node's own, as in the kubelet without one"},
		{Path: "spec.dnsConfig.nameservers"},
		{Path: "spec.dnsConfig.searches"},
		{Path: "spec.dnsConfig.options[].name"},
		{Path: "spec.dnsConfig.options[].value"},
		{Path: "spec.hostNetwork"},
		{Path: "spec.hostPID"},
		{Path: "spec.hostIPC"},
		{Path: "spec.shareProcessNamespace"},
		{Path: "spec.hostname"},
		{Path: "spec.subdomain", Note: "the pod's own hosts file has its name as HOSTNAME.SUBDOMAIN.NAMESPACE.svc.cluster.local; nobody else resolves it"},
		{Path: "spec.setHostnameAsFQDN", Note: "with a subdomain; a name of more than 64 characters keeps the pod from starting"},
		{Path: "spec.hostnameOverride"},
		{Path: "spec.hostAliases[].ip"},
		{Path: "spec.hostAliases[].hostnames"},
		{Path: "spec.imagePullSecrets[].name", Note: "Secrets of type kubernetes.io/dockerconfigjson or dockercfg in one of the files"},
		{Path: "spec.enableServiceLinks", Note: "no Services exist here, so no links"},
		{Path: "spec.automountServiceAccountToken", Only: []string{"false"}},
		{Path: "spec.serviceAccountName", Note: "a name and no more: there is no API server that its token would be good for"},
		{Path: "spec.serviceAccount", Note: "as serviceAccountName"},
		{Path: "spec.schedulerName", Only: []string{"default-scheduler"}},
		{Path: "spec.hostUsers", Note: "`false` needs a handler with user namespaces"},
		{Path: "spec.os.name", Only: []string{"linux"}},

		{Path: "spec.nodeSelector", Note: "the machine has the labels kubernetes.io/hostname, kubernetes.io/os and kubernetes.io/arch; a pod for others has failed (`NodeAffinity`). `fairlead run` knows the last two"},
		{Path: "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", Note: "as nodeSelector, with `fairlead up` only"},
		{Path: "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", Idle: oneMachine},
		{Path: "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution", Idle: oneMachine},
		{Path: "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution", Idle: oneMachine},
		{Path: "spec.topologySpreadConstraints", Idle: oneMachine},
		{Path: "spec.tolerations", Note: "the machine has no taints; a pod that tolerates the one for want of memory is let in then"},
		{Path: "spec.priorityClassName", Note: "the class must be in one of the files, or be one of the two that every cluster has; without it the default class, if there is one"},
		{Path: "spec.priority", Note: "what `fairlead up` evicts, ends for more important pods and ends at a shutdown goes by it; with `fairlead run` nothing does. With a class it must be that of the class"},
		{Path: "spec.preemptionPolicy", Note: "as of a PriorityClass; with a class it must be that of the class"},

		{Path: "spec.resources.limits.cpu", Note: "of the pod as a whole, also of containers that have none"},
		{Path: "spec.resources.limits.memory", Note: "as limits.cpu"},
		{Path: "spec.resources.limits." + anyPages, Note: "as limits.cpu"},
		{Path: "spec.resources.requests.cpu", Note: "at least what its containers ask for together"},
		{Path: "spec.resources.requests.memory", Note: "as requests.cpu"},
		{Path: "spec.resources.requests." + anyPages, Note: "with a limit of the same"},

		{Path: "spec.securityContext.runAsUser"},
		{Path: "spec.securityContext.runAsGroup"},
		{Path: "spec.securityContext.runAsNonRoot"},
		{Path: "spec.securityContext.supplementalGroups"},
		{Path: "spec.securityContext.supplementalGroupsPolicy"},
		{Path: "spec.securityContext.fsGroup", Note: "given to emptyDir, configMap, secret, downwardAPI and projected volumes, and to claims"},
		{Path: "spec.securityContext.fsGroupChangePolicy", Note: "of claims; other volumes are new for each pod, so that both policies do the same"},
		{Path: "spec.securityContext.sysctls[].name"},
		{Path: "spec.securityContext.sysctls[].value"},
		{Path: "spec.securityContext.seLinuxOptions"},
		{Path: "spec.securityContext.seccompProfile.type", Note: "without one the handler's default profile is used"},
		{Path: "spec.securityContext.seccompProfile.localhostProfile", Note: "a path below seccomp/ in the root directory"},
		{Path: "spec.securityContext.appArmorProfile.type"},
		{Path: "spec.securityContext.appArmorProfile.localhostProfile"},

		{Path: "spec.volumes[].name"},
		{Path: "spec.volumes[].emptyDir.medium", Only: []string{"Memory", "HugePages", "HugePages-SIZE"}},
		{Path: "spec.volumes[].emptyDir.sizeLimit", Note: "without a medium with `fairlead up` only, which evicts a pod that goes past it; a volume of medium Memory is never larger than what all containers may use together, if each has a limit, or else than the memory of the machine"},
		{Path: "spec.volumes[].hostPath.path"},
		{Path: "spec.volumes[].hostPath.type"},
		{Path: "spec.volumes[].image.reference", Note: "mounted read-only; a subPath is a folder in it"},
		{Path: "spec.volumes[].image.pullPolicy", Note: "as imagePullPolicy"},
		{Path: "spec.volumes[].configMap", Note: "read once, when the pod starts"},
		{Path: "spec.volumes[].secret", Note: "kept in memory; read once, when the pod starts"},
		{Path: "spec.volumes[].persistentVolumeClaim.claimName", Note: "with `fairlead up` only; the claim must be in one of the files"},
		{Path: "spec.volumes[].persistentVolumeClaim.readOnly"},
		{Path: "spec.volumes[].downwardAPI", Note: "read once, when the pod starts; a limit that is not set is what the machine has"},
		{Path: "spec.volumes[].projected.defaultMode"},
		{Path: "spec.volumes[].projected.sources[].configMap"},
		{Path: "spec.volumes[].projected.sources[].secret"},
		{Path: "spec.volumes[].projected.sources[].downwardAPI"},
	},
	containerFields("spec.containers[]"),
	containerFields("spec.initContainers[]"),
)

// containerFields is the table for one list of containers.
func containerFields(list string) []Field {
	fields := []Field{
		{Path: "name"},
		{Path: "image"},
		{Path: "imagePullPolicy"},
		{Path: "command"},
		{Path: "args"},
		{Path: "workingDir"},
		{Path: "env[].name"},
		{Path: "env[].value"},
		{Path: "env[].valueFrom.configMapKeyRef"},
		{Path: "env[].valueFrom.secretKeyRef"},
		{Path: "env[].valueFrom.fieldRef"},
		{Path: "env[].valueFrom.resourceFieldRef"},
		{Path: "envFrom[].prefix"},
		{Path: "envFrom[].configMapRef"},
		{Path: "envFrom[].secretRef"},
		{Path: "ports[].name"},
		{Path: "ports[].containerPort"},
		{Path: "ports[].hostPort"},
		{Path: "ports[].hostIP"},
		{Path: "ports[].protocol"},
		{Path: "resources.limits.cpu"},
		{Path: "resources.limits.memory"},
		{Path: "resources.limits.ephemeral-storage", Note: "with `fairlead up` only, which evicts a pod that goes past it"},
		{Path: "resources.limits." + anyPages, Note: "as the request, if there is one, and beside cpu or memory; a pod that asks for more than the machine has is not run"},
		{Path: "resources.requests.cpu"},
		{Path: "resources.requests.memory"},
		{Path: "resources.requests.ephemeral-storage", Note: "which pods are evicted first for want of disk goes by it"},
		{Path: "resources.requests." + anyPages, Note: "with a limit of the same"},
		{Path: "resizePolicy", Idle: "a pod whose manifest changes is replaced"},
		{Path: "securityContext.capabilities"},
		{Path: "securityContext.privileged"},
		{Path: "securityContext.seLinuxOptions"},
		{Path: "securityContext.runAsUser"},
		{Path: "securityContext.runAsGroup"},
		{Path: "securityContext.runAsNonRoot"},
		{Path: "securityContext.readOnlyRootFilesystem"},
		{Path: "securityContext.allowPrivilegeEscalation"},
		{Path: "securityContext.procMount"},
		{Path: "securityContext.seccompProfile.type"},
		{Path: "securityContext.seccompProfile.localhostProfile"},
		{Path: "securityContext.appArmorProfile.type"},
		{Path: "securityContext.appArmorProfile.localhostProfile"},
		{Path: "volumeMounts[].name"},
		{Path: "volumeMounts[].mountPath"},
		{Path: "volumeMounts[].readOnly"},
		{Path: "volumeMounts[].recursiveReadOnly"},
		{Path: "volumeMounts[].subPath"},
		{Path: "volumeMounts[].subPathExpr", Note: "refused when the container starts if it has no variable of that name"},
		{Path: "volumeMounts[].mountPropagation"},
		{Path: "terminationMessagePath"},
		{Path: "terminationMessagePolicy"},
		{Path: "stdin"},
		{Path: "stdinOnce"},
		{Path: "tty"},
	}
	for i := range fields {
		fields[i].Path = list + "." + fields[i].Path
	}
	note := ""
	if list == "spec.initContainers[]" {
		note = "Always makes a sidecar: it is started in its turn, runs beside the others, and ends after them"
	}
	fields = append(fields, Field{Path: list + ".restartPolicy", Note: note}, Field{Path: list + ".restartPolicyRules"})
	return append(fields, careFields(list)...)
}

// careFields are those of hooks and probes.
func careFields(list string) []Field {
	const (
		hooks  = "exec, httpGet or sleep; tcpSocket is refused, as no kubelet runs it"
		probes = "exec, httpGet, tcpSocket or grpc; with --detach nobody probes"
	)
	of := ""
	if list == "spec.initContainers[]" {
		of = "of sidecars; "
	}
	return []Field{
		{Path: list + ".lifecycle.postStart", Note: of + hooks},
		{Path: list + ".lifecycle.preStop", Note: of + hooks},
		{Path: list + ".startupProbe", Note: of + probes},
		{Path: list + ".livenessProbe", Note: of + probes},
		{Path: list + ".readinessProbe", Note: of + probes},
	}
}

var headFields = []Field{
	{Path: "apiVersion"},
	{Path: "kind"},
	{Path: "metadata.name"},
}

var namespaceField = Field{Path: "metadata.namespace"}

// labelFields are for kinds whose labels and annotations nothing here reads.
var labelFields = []Field{
	{Path: "metadata.labels"},
	{Path: "metadata.annotations"},
}

// Tables gives the honoured fields of every kind, by "API version, space,
// kind". It is what the user guide's matrix is made of.
func Tables() map[string][]Field {
	out := make(map[string][]Field, len(tables))
	for kind, fields := range tables {
		out[kind] = slices.Clone(fields)
	}
	return out
}

// Of is the table of a kind, by its API version.
func Of(version, kind string) ([]Field, bool) {
	table, ok := tables[version+" "+kind]
	return table, ok
}

// Static is the table of a static pod of a node: all fields, of which status says nothing.
func Static() []Field { return staticFields }

// Complaint is a field that is set and not honoured.
type Complaint struct{ Path, Why string }

// Unhonoured finds every field of the tree that is set, and that the table
// does not honour, and those that mean nothing here. A field with an empty value
// (false, 0, "", no entries) asks for nothing and counts as not set.
func Unhonoured(table []Field, tree map[string]any) (found, idle []Complaint) {
	w := walker{exact: map[string]Field{}, inner: map[string]bool{}}
	for _, f := range table {
		w.exact[f.Path] = f
		for p := parent(f.Path); p != ""; p = parent(p) {
			w.inner[p] = true
		}
	}
	w.object("", "", tree)
	return w.found, w.idle
}

type walker struct {
	exact map[string]Field
	inner map[string]bool
	found []Complaint
	idle  []Complaint
}

func (w *walker) object(pattern, path string, o map[string]any) {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		w.value(fields.Join(pattern, name), fields.Join(path, name), o[name])
	}
}

func (w *walker) value(pattern, path string, v any) {
	if fields.IsZero(v) {
		return
	}
	if f, ok := w.exact[ofAnySize(pattern, ".hugepages-")]; ok {
		if got := fmt.Sprint(v); len(f.Only) > 0 && !slices.Contains(f.Only, ofAnySize(got, "HugePages-")) {
			w.found = append(w.found, Complaint{path, fmt.Sprintf("%q is not honoured by Fairlead yet, only %s",
				got, strings.Join(f.Only, ", "))})
		}
		if f.Idle != "" {
			w.idle = append(w.idle, Complaint{path, f.Idle})
		}
		return
	}
	if list, ok := v.([]any); ok && w.inner[pattern+"[]"] {
		for i, item := range list {
			w.value(pattern+"[]", path+"["+strconv.Itoa(i)+"]", item)
		}
		return
	}
	if o, ok := v.(map[string]any); ok && w.inner[pattern] {
		w.object(pattern, path, o)
		return
	}
	w.found = append(w.found, Complaint{path, "not honoured by Fairlead yet; remove it"})
}

// anyPages stands for huge pages of all sizes in the table.
const anyPages = "hugepages-SIZE"

// ofAnySize has SIZE in the place of a size at the end of text, if that comes after a word.
func ofAnySize(text, word string) string {
	i := strings.LastIndex(text, word)
	if i < 0 || strings.ContainsRune(text[i+1:], '.') {
		return text
	}
	return text[:i] + word + "SIZE"
}

// parent cuts the last step off a path: "a.b[].c" becomes "a.b[]", then "a.b".
func parent(path string) string {
	if p, ok := strings.CutSuffix(path, "[]"); ok {
		return p
	}
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}
