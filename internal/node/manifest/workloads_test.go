package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// templated is an object with a template. spec is added to its own spec, and pod to
// that of the template.
func templated(version, kind, spec, pod string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: w}\nspec:\n%s  template:\n    metadata: {labels: {app: w}}\n    spec:\n%s      containers: [{name: c, image: i}]\n",
		version, kind, spec, pod)
}

const (
	selector = "  selector: {matchLabels: {app: w}}\n"
	never    = "      restartPolicy: Never\n"
)

func cronJob(spec, job string) string {
	text := templated("batch/v1", "Job", job, never)
	_, text, _ = strings.Cut(text, "spec:\n")
	return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: w}\nspec:\n" + spec + "  jobTemplate:\n    spec:\n    " + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n    "), "    ")
}

// whole is a pod that asks for something itself, with a container that does, too.
func whole(pod, container string) string {
	return strings.Replace(onePod, "image: img:1", "image: img:1\n    resources: "+container+"\n  resources: "+pod, 1)
}

func TestWorkloadsInTheForeground(t *testing.T) {
	job := func(spec string) string { return templated("batch/v1", "Job", spec, never) }
	tests := []struct{ name, text, pods, note, fault string }{
		{"ReplicaSet", templated("apps/v1", "ReplicaSet", "  replicas: 2\n"+selector, ""), "w-0 w-1", "", ""},
		{"DaemonSet", templated("apps/v1", "DaemonSet", selector, ""), "w-0", "", ""},
		{"StatefulSet", templated("apps/v1", "StatefulSet", "  replicas: 2\n  serviceName: w\n"+selector, ""), "w-0 w-1", "starts its pods at once", ""},
		{"StatefulSet, one", templated("apps/v1", "StatefulSet", "  ordinals: {start: 4}\n"+selector, ""), "w-4", "", ""},
		{"StatefulSet with claims", templated("apps/v1", "StatefulSet", "  volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]\n"+selector, ""), "", "", "spec.template.spec.volumes[0].persistentVolumeClaim: fairlead run keeps nothing when it ends"},
		{"StatefulSet, claims", templated("apps/v1", "StatefulSet", "  volumeClaimTemplates: [{metadata: {name: v}}]\n"+selector, ""), "", "", "web.yaml:5: document 1: StatefulSet default/w: spec.volumeClaimTemplates[0].spec.accessModes: at least one is required"},
		{"StatefulSet, claims' names", templated("apps/v1", "StatefulSet", "  volumeClaimTemplates: [{metadata: {name: v}}, {metadata: {name: v}}]\n"+selector, ""), "", "", "spec.volumeClaimTemplates[1].metadata.name: \"v\" is the name of an earlier one"},
		{"StatefulSet, claims' end", templated("apps/v1", "StatefulSet", "  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}\n"+selector, ""), "", "", "whenDeleted: \"Delete\" is not honoured by Fairlead yet, only Retain"},
		{"StatefulSet without a selector", templated("apps/v1", "StatefulSet", "", ""), "", "", "spec.selector: is required"},
		{"StatefulSet, policy", templated("apps/v1", "StatefulSet", "  podManagementPolicy: Any\n"+selector, ""), "", "", "spec.podManagementPolicy"},
		{"Job", job(""), "w-0", "", ""},
		{"Job of two", job("  completions: 2\n  parallelism: 3\n  backoffLimit: 0\n"), "w-0 w-1", "", ""},
		{"Job, retried", job("  backoffLimit: 4\n"), "w-0", "fairlead run does not replace a pod that failed", ""},
		{"Job, one after the other", job("  completions: 5\n  parallelism: 2\n"), "", "", "web.yaml:1: document 1: Job default/w: spec.parallelism: fairlead run starts all 5 pods at once, and not 2; make it 5, or use fairlead up"},
		{"Job, suspended", job("  suspend: true\n"), "", "", ""},
		{"Job that always restarts", templated("batch/v1", "Job", "", "      restartPolicy: Always\n"), "", "", `spec.template.spec.restartPolicy: "Always" does not fit a Job`},
		{"Job without a policy", templated("batch/v1", "Job", "", ""), "", "", "spec.template.spec.restartPolicy: is required: Never or OnFailure"},
		{"Job, indexed", job("  completionMode: Indexed\n"), "", "", "spec.completions: is required by completionMode Indexed"},
		{"Job, policy", job("  podFailurePolicy: {rules: [{action: FailJob}]}\n"), "", "", "spec.podFailurePolicy.rules[0]: must have one of onExitCodes and onPodConditions"},
		{"Job, policy that is right", job("  podReplacementPolicy: Failed\n  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}, {action: FailJob, onExitCodes: {containerName: c, operator: In, values: [3, 42]}}]}\n"), "w-0", "fairlead run does not replace a pod that failed", ""},
		{"Job, policy of an index", job("  podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {operator: In, values: [3]}}]}\n"), "", "", `spec.podFailurePolicy.rules[0].action: "FailIndex" is not one of`},
		{"Job, codes", job("  podFailurePolicy: {rules: [{action: Count, onExitCodes: {operator: In, values: [3, 0]}}]}\n"), "", "", "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: 0 is no failure"},
		{"Job, code of another", job("  podFailurePolicy: {rules: [{action: Count, onExitCodes: {containerName: x, operator: NotIn, values: [3]}}]}\n"), "", "", `containerName: "x" is not the name of a container`},
		{"Job, policy in place", templated("batch/v1", "Job", "  podFailurePolicy: {rules: [{action: Count, onExitCodes: {operator: In, values: [3]}}]}\n", "      restartPolicy: OnFailure\n"), "", "", `"OnFailure" does not go with a podFailurePolicy`},
		{"Job, replacement", job("  podReplacementPolicy: Never\n"), "", "", "spec.podReplacementPolicy"},
		{"Job, indexes", job("  backoffLimitPerIndex: 1\n"), "", "", "spec.backoffLimitPerIndex: not honoured by Fairlead yet; remove it"},
		{"Job, negative", job("  parallelism: -1\n"), "", "", "spec.parallelism: -1 is not between 0 and 1000"},
		{"Job, template", strings.Replace(job(""), "image: i", "image: i, ports: [{}]", 1), "", "", "web.yaml:9: document 1: Job default/w: spec.template.spec.containers[0].ports[0].containerPort"},
		{"Job beside a pod of its own", job("") + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: w-0}\nspec: {containers: [{name: c, image: i}]}\n", "", "", "Job default/w: its pod w-0 is defined twice"},
		{"CronJob", cronJob("  schedule: '@daily'\n", ""), "", "", "web.yaml:1: document 1: CronJob default/w: fairlead run ends with its pods and follows no schedule; put the file into a folder and use fairlead up --manifests FOLDER"},
		{"CronJob, schedule", cronJob("  schedule: 5 25 * * *\n", ""), "", "", `web.yaml:5: document 1: CronJob default/w: spec.schedule: "5 25 * * *": hour: "25" is not between 0 and 23`},
		{"CronJob, zone", cronJob("  schedule: '@daily'\n  timeZone: Mars/Olympus\n", ""), "", "", `spec.timeZone: "Mars/Olympus" is not a time zone that this machine knows`},
		{"CronJob, the machine's zone by name", cronJob("  schedule: '@daily'\n  timeZone: Local\n", ""), "", "", `spec.timeZone: "Local" is not the name`},
		{"CronJob, policy", cronJob("  schedule: '@daily'\n  concurrencyPolicy: Maybe\n", ""), "", "", "spec.concurrencyPolicy"},
		{"CronJob, its Job", cronJob("  schedule: '@daily'\n", "  backoffLimit: -1\n"), "", "", "spec.jobTemplate.spec.backoffLimit: -1 is not between"},
		{"CronJob, name", strings.Replace(cronJob("  schedule: '@daily'\n", ""), "name: w", "name: "+strings.Repeat("w", 53), 1), "", "", "metadata.name: has 53 characters"},
		{"claim", onePod + "  volumes: [{name: v, persistentVolumeClaim: {claimName: w}}]\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: w}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n", "", "", "spec.volumes[0].persistentVolumeClaim: fairlead run keeps nothing when it ends"},
		{"claim of a Job", strings.Replace(job(""), "      containers:", "      volumes: [{name: v, persistentVolumeClaim: {claimName: w}}]\n      containers:", 1) + "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: w}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n", "", "", "Job default/w: spec.template.spec.volumes[0].persistentVolumeClaim: fairlead run keeps nothing when it ends"},
		{"claim, access", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: w}\nspec: {volumeMode: Block}\n", "", "", `spec.volumeMode: "Block" is not honoured`},
		{
			"Deployment, rollout", templated("apps/v1", "Deployment", selector+"  minReadySeconds: 5\n  revisionHistoryLimit: 2\n  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}\n", "      topologySpreadConstraints: [{maxSkew: 1}]\n"), "w-0",
			"Deployment default/w: means nothing here and is left out: spec.minReadySeconds (pods are replaced all at once), spec.revisionHistoryLimit (the one before is not kept), spec.strategy.rollingUpdate (pods are replaced all at once), spec.template.spec.topologySpreadConstraints (there is one machine)", "",
		},
		{"Deployment, Recreate", templated("apps/v1", "Deployment", selector+"  strategy: {type: Recreate}\n", "      tolerations: [{operator: Exists}]\n      priorityClassName: system-node-critical\n      nodeSelector: {kubernetes.io/os: linux}\n"), "w-0", "", ""},
		{"DaemonSet, update", templated("apps/v1", "DaemonSet", selector+"  updateStrategy: {type: OnDelete}\n", ""), "", "", `spec.updateStrategy.type: "OnDelete" is not honoured`},
		{"StatefulSet, update", templated("apps/v1", "StatefulSet", selector+"  updateStrategy: {rollingUpdate: {partition: 1}}\n", ""), "", "", "spec.updateStrategy.rollingUpdate.partition: not honoured"},
		{"affinity", templated("apps/v1", "Deployment", selector, "      affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}]}}\n"), "w-0", "spec.template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution (there is one machine)", ""},
		{"another machine", onePod + "  nodeSelector: {disk: fast}\n", "", "", "spec.nodeSelector: fairlead run does not know this machine as disk=fast"},
		{"another class", onePod + "  priorityClassName: gold\n", "", "", "web.yaml:1: document 1: Pod default/web: spec.priorityClassName: there is no PriorityClass gold; add it to the manifests, or leave the field out"},
		{"disk", strings.Replace(onePod, "image: img:1", "image: img:1\n    resources: {limits: {ephemeral-storage: 1Gi}}", 1), "", "", "spec.containers[0].resources.limits.ephemeral-storage: fairlead run ends no pod that goes past it"},
		{"pod as a whole", whole("{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}", "{requests: {cpu: 500m}, limits: {memory: 1Gi}}"), "web", "", ""},
		{"of a template", templated("apps/v1", "Deployment", selector, "      resources: {limits: {cpu: 1}, requests: {cpu: 2}}\n"), "", "", "Deployment default/w: spec.template.spec.resources.requests.cpu: 2 is more than the limit 1"},
		{"pod as a whole, less than its containers", whole("{requests: {cpu: 1}}", "{limits: {cpu: 1100m}}"), "", "", "web.yaml:10: document 1: Pod default/web: spec.resources.requests.cpu: 1 is less than what its containers ask for together, 1100m"},
		{"pod as a whole, its limit and their requests", whole("{limits: {cpu: 1}}", "{requests: {cpu: 1100m}}"), "", "", "spec.resources.requests.cpu: 1100m is more than the limit 1"},
		{"pod as a whole, a limit above it", whole("{limits: {memory: 1Mi}, requests: {memory: 1Mi}}", "{limits: {memory: 2Mi}, requests: {memory: 1Mi}}"), "", "", "spec.resources.limits.memory: 1Mi is less than the limit of container c, 2Mi"},
		{"pod as a whole, disk", whole("{limits: {ephemeral-storage: 1Mi}}", "{}"), "", "", "spec.resources.limits.ephemeral-storage: not honoured"},
		{"pod as a whole, pages", whole("{limits: {hugepages-2Mi: 2Mi}}", "{}"), "", "", "spec.resources: huge pages need a limit or request of cpu or memory beside them"},
		{"pod as a whole, pages of containers", whole("{limits: {cpu: 1, hugepages-2Mi: 2Mi}}", "{limits: {cpu: 1, hugepages-2Mi: 4Mi}}"), "", "", "is less than"},
		{"names", onePod + "  hostname: a\n  subdomain: b\n  setHostnameAsFQDN: true\n", "web", "", ""},
		{"another name", onePod + "  hostnameOverride: a.example.com\n", "web", "", ""},
		{"subdomain", onePod + "  subdomain: a.b\n", "", "", `spec.subdomain: "a.b": must not contain dots`},
		{"another name, beside", onePod + "  setHostnameAsFQDN: true\n  hostnameOverride: a\n", "", "", "spec.hostnameOverride: does not go with setHostnameAsFQDN"},
		{"another name, of the node", onePod + "  hostNetwork: true\n  hostnameOverride: a\n", "", "", "spec.hostnameOverride: does not go with hostNetwork"},
		{"another name, too long", onePod + "  hostnameOverride: " + strings.Repeat("a.", 32) + "a\n", "", "", "spec.hostnameOverride: has 65 characters"},
		{"StatefulSet, service", templated("apps/v1", "StatefulSet", selector+"  serviceName: a.b\n", ""), "", "", `spec.serviceName: "a.b"`},
		{"Service", onePod + "---\napiVersion: v1\nkind: Service\nmetadata: {name: w}\nspec: {selector: {a: b}, ports: [{port: 80}]}\nstatus: {loadBalancer: {}}\n", "web", "Service default/w: is left out: names of Services are not resolved here", ""},
		{"Namespace", onePod + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: w}\n", "web", "Namespace w: is left out", ""},
		{"ServiceAccount", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: w}\nautomountServiceAccountToken: false\n---\n" + onePod + "  serviceAccountName: w\n", "web", "ServiceAccount default/w: is left out", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := decode(tt.text)
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Fatalf("got %v, want %q", err, tt.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range o.Pods {
				names = append(names, p.Name)
			}
			if got := strings.Join(names, " "); got != tt.pods || len(o.Workloads) > 0 {
				t.Errorf("pods %q, want %q; workloads %v", got, tt.pods, o.Workloads)
			}
			if notes := strings.Join(o.Notes, "\n"); (tt.note == "") != (notes == "") || !strings.Contains(notes, tt.note) {
				t.Errorf("notes %q, want %q", notes, tt.note)
			}
		})
	}
}

// TestWorkloadsOfAnAgent keeps what a run in the foreground makes pods of.
func TestWorkloadsOfAnAgent(t *testing.T) {
	f := file(t, "a.yaml", cronJob("  schedule: '@daily'\n", "")+"---\n"+templated("batch/v1", "Job", "  completions: 5\n", never)+"---\n"+templated("apps/v1", "StatefulSet", selector, ""))
	o, problems := Merge([]*File{f, file(t, "b.yaml", templated("batch/v1", "Job", "", never))})
	if len(o.Workloads) != 3 || len(o.Pods) != 0 || len(problems) != 1 || !strings.Contains(problems[0].Err.Error(), "Job default/w: is defined twice") {
		t.Fatalf("%v, %v, %v", o.Workloads, o.Pods, problems)
	}
	if w := o.Workloads[1]; w.Kind != "Job" || w.Key().String() != "default/w" || w.Origin != "a.yaml:14: document 2: Job default/w" || w.Source != "a.yaml" {
		t.Errorf("%+v", w)
	}
	// What a template refers to is looked for, too.
	text := strings.Replace(cronJob("  schedule: '@daily'\n", ""), "image: i", "image: i, envFrom: [{secretRef: {name: s}}]", 1)
	o, _ = Merge([]*File{file(t, "a.yaml", text)})
	if refs := o.References(); len(refs) != 1 || !strings.Contains(refs[0].Err.Error(), "no Secret default/s") {
		t.Errorf("%v", refs)
	}
}

// TestStoredWorkloads takes what kubectl get writes.
func TestStoredWorkloads(t *testing.T) {
	stored := func(text string) string {
		return strings.Replace(text, "{name: w}", "{name: w, uid: u, generation: 1, annotations: {}}", 1)
	}
	for name, text := range map[string]string{
		"DaemonSet":   templated("apps/v1", "DaemonSet", selector+"  revisionHistoryLimit: 10\n  updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}, type: RollingUpdate}\n", ""),
		"StatefulSet": templated("apps/v1", "StatefulSet", selector+"  podManagementPolicy: OrderedReady\n  revisionHistoryLimit: 10\n  updateStrategy: {rollingUpdate: {partition: 0}, type: RollingUpdate}\n  persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}\n", ""),
		"Job": strings.Replace(templated("batch/v1", "Job", "  podReplacementPolicy: TerminatingOrFailed\n  suspend: false\n  manualSelector: false\n  completionMode: NonIndexed\n  selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}\n", never),
			"{app: w}", "{batch.kubernetes.io/controller-uid: u, controller-uid: u, job-name: w}", 1),
	} {
		o, err := decode(stored(text))
		if err != nil || len(o.Pods) != 1 {
			t.Errorf("%s: %v, %v", name, o, err)
			continue
		}
		if _, left := o.Pods[0].Labels["controller-uid"]; left {
			t.Errorf("%s: the label of another Job is left", name)
		}
	}
	claims := "  volumeClaimTemplates: [{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: v, creationTimestamp: null}, spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem}, status: {phase: Pending}}]\n"
	if _, err := DecodeFile(Source{"a.yaml", []byte(stored(templated("apps/v1", "StatefulSet", selector+claims, "")))}); err != nil {
		t.Errorf("claims: %v", err)
	}
}
