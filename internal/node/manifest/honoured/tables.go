package honoured

import "slices"

// tables holds the fields of each kind, by its API version and kind.
var tables = map[string][]Field{
	"v1 Pod": slices.Concat(headFields, []Field{namespaceField}, podFields),
	"apps/v1 Deployment": namespaced(replicaFields, rolloutFields,
		[]Field{{Path: "spec.selector", Note: "must select the labels of the template"}}, below("spec.template.")),
	"extensions/v1beta1 Deployment": namespaced(replicaFields, rolloutFields,
		[]Field{{Path: "spec.selector", Note: "defaults to the labels of the template"}}, below("spec.template.")),
	"apps/v1 ReplicaSet":       namespaced(replicaFields, selectorFields, minReady, below("spec.template.")),
	"apps/v1 DaemonSet":        namespaced(selectorFields, updateFields, []Field{{Path: "spec.updateStrategy.rollingUpdate.maxSurge", Idle: atOnceWhy}}, below("spec.template.")),
	"apps/v1 StatefulSet":      namespaced(replicaFields, selectorFields, statefulFields, claimTemplateFields(), updateFields, below("spec.template.")),
	"batch/v1 Job":             namespaced(jobFields("spec."), below("spec.template.")),
	"batch/v1 CronJob":         namespaced(cronFields, jobFields("spec.jobTemplate.spec."), below("spec.jobTemplate.spec.template.")),
	"v1 ConfigMap":             namespaced([]Field{{Path: "data"}, {Path: "binaryData"}, {Path: "immutable"}}),
	"v1 Secret":                namespaced([]Field{{Path: "data"}, {Path: "stringData"}, {Path: "type"}, {Path: "immutable"}}),
	"v1 PersistentVolumeClaim": namespaced(claimFields),
	"v1 Namespace":             slices.Concat(headFields, labelFields, []Field{{Path: "spec", Note: ignored}, {Path: "status", Note: ignored}}),
	"v1 Service":               namespaced([]Field{{Path: "spec", Note: ignored}, {Path: "status", Note: ignored}}),
	"v1 ServiceAccount": namespaced([]Field{
		{Path: "secrets", Note: ignored},
		{Path: "imagePullSecrets", Note: ignored + "; name them in the pod"},
		{Path: "automountServiceAccountToken", Note: ignored},
	}),
	"node.k8s.io/v1 RuntimeClass":       classFields(""),
	"node.k8s.io/v1beta1 RuntimeClass":  classFields(""),
	"node.k8s.io/v1alpha1 RuntimeClass": classFields("spec."),
	"scheduling.k8s.io/v1 PriorityClass": slices.Concat(headFields, labelFields, []Field{
		{Path: "value", Note: "counts at once for all pods of the class if it is changed"},
		{Path: "globalDefault", Note: "for pods that name no class; of several the lowest"},
		{Path: "preemptionPolicy", Note: "with Never a pod ends no less important ones to have its place, and waits"},
		{Path: "description"},
	}),
}

var staticFields = []Field{{Path: "apiVersion"}, {Path: "kind"}, {Path: "metadata"}, {Path: "spec"}, {Path: "status"}}

var claimFields = []Field{
	{Path: "spec.accessModes", Note: "a folder on this machine takes all of them"},
	{Path: "spec.resources.requests.storage", Note: "nothing limits the folder to it"},
	{Path: "spec.storageClassName", Note: "the folder is the same whatever it says"},
	{Path: "spec.volumeMode", Only: []string{"Filesystem"}},
}

// claimTemplateFields is the table of the claims of a StatefulSet.
func claimTemplateFields() []Field {
	out := slices.Concat([]Field{
		{Path: "metadata.name", Note: "with `fairlead up` only: each pod has a claim of its own, TEMPLATE-POD, which stays when the pod goes"},
		{Path: "apiVersion"},
		{Path: "kind"},
	}, labelFields, claimFields)
	for i := range out {
		out[i].Path = "spec.volumeClaimTemplates[]." + out[i].Path
	}
	return out
}

// Why nothing is left of what says how a workload is rolled out.
const (
	atOnceWhy   = "pods are replaced all at once"
	noRevisions = "the one before is not kept"
)

const ignored = "ignored, as the whole object is, with a note"

// namespaced is the table of a kind whose own labels nothing here reads.
func namespaced(parts ...[]Field) []Field {
	return slices.Concat(headFields, []Field{namespaceField}, labelFields, slices.Concat(parts...))
}

var (
	replicaFields  = []Field{{Path: "spec.replicas", Note: "each replica is a pod named NAME-0, NAME-1, ..."}}
	selectorFields = []Field{{Path: "spec.selector", Note: "must select the labels of the template"}}
	// Nothing is rolled out: a changed template replaces all pods at once.
	minReady      = []Field{{Path: "spec.minReadySeconds", Idle: atOnceWhy}}
	rolloutFields = slices.Concat(minReady, []Field{
		{Path: "spec.strategy.type", Only: []string{"Recreate", "RollingUpdate"}, Note: atOnceWhy + " with both"},
		{Path: "spec.strategy.rollingUpdate", Idle: atOnceWhy},
		{Path: "spec.revisionHistoryLimit", Idle: noRevisions},
		{Path: "spec.progressDeadlineSeconds", Idle: atOnceWhy},
	})
	updateFields = slices.Concat(minReady, []Field{
		{Path: "spec.updateStrategy.type", Only: []string{"RollingUpdate"}, Note: atOnceWhy},
		{Path: "spec.updateStrategy.rollingUpdate.maxUnavailable", Idle: atOnceWhy},
		{Path: "spec.revisionHistoryLimit", Idle: noRevisions},
	})
	statefulFields = []Field{
		{Path: "spec.serviceName", Note: "is the subdomain of its pods; names of others are not resolved"},
		{Path: "spec.podManagementPolicy", Note: "`fairlead run` starts all pods at once"},
		{Path: "spec.ordinals.start"},
		{Path: "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Only: []string{"Retain"}},
		{Path: "spec.persistentVolumeClaimRetentionPolicy.whenScaled", Only: []string{"Retain"}},
	}
	cronFields = []Field{
		{Path: "spec.schedule", Note: "`fairlead run` refuses CronJobs; `fairlead up` runs them"},
		{Path: "spec.timeZone", Note: "without one, that of the machine"},
		{Path: "spec.concurrencyPolicy"},
		{Path: "spec.startingDeadlineSeconds"},
		{Path: "spec.suspend"},
		{Path: "spec.successfulJobsHistoryLimit"},
		{Path: "spec.failedJobsHistoryLimit"},
		{Path: "spec.jobTemplate.metadata.labels"},
		{Path: "spec.jobTemplate.metadata.annotations"},
	}
)

func jobFields(prefix string) []Field {
	return []Field{
		{Path: prefix + "parallelism", Note: "`fairlead run` starts all pods at once, and refuses less"},
		{Path: prefix + "completions"},
		{Path: prefix + "completionMode", Note: "with Indexed, JOB_COMPLETION_INDEX is set"},
		{Path: prefix + "backoffLimit", Note: "`fairlead run` does not replace a pod that failed"},
		{Path: prefix + "podFailurePolicy.rules[].action", Note: "FailJob, Ignore or Count; FailIndex is refused, as backoffLimitPerIndex is"},
		{Path: prefix + "podFailurePolicy.rules[].onExitCodes"},
		{Path: prefix + "podFailurePolicy.rules[].onPodConditions", Note: "a status that is left out is True"},
		{Path: prefix + "podReplacementPolicy", Note: "a pod is replaced once it has failed, with both"},
		{Path: prefix + "activeDeadlineSeconds"},
		{Path: prefix + "ttlSecondsAfterFinished", Note: "with `fairlead up` only"},
		{Path: prefix + "suspend"},
	}
}

// below is the table of a Pod as that of a template.
func below(prefix string) []Field {
	var fields []Field
	for _, f := range podFields {
		f.Path = prefix + f.Path
		fields = append(fields, f)
	}
	return fields
}

func classFields(prefix string) []Field {
	handler := "handler"
	if prefix != "" {
		handler = "runtimeHandler"
	}
	const scheduling = "nothing is scheduled on one machine: accepted with a note"
	return slices.Concat(headFields, labelFields, []Field{
		{Path: prefix + handler},
		{Path: prefix + "overhead.podFixed"},
		{Path: prefix + "scheduling.nodeSelector", Note: scheduling},
		{Path: prefix + "scheduling.tolerations", Note: scheduling},
	})
}
