package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/installer/view"
	"fairlead.run/internal/operator/names"
)

// Order is a runtime for the nodes of a pool.
type Order struct {
	Runtime  *gardener.ContainerRuntime
	Type     string // by its own name
	Payload  *v1alpha1.RuntimePayload
	Settings payload.InstallSettings
	// CRI and Restart are those of the pool.
	CRI     v1alpha1.CRIName
	Restart v1alpha1.Restart
	// Image is the name of their machine image, "" if nobody says it.
	Image string
	// Distribution is how that is set up on the nodes, and Architectures are those of
	// which nodes are installed on.
	Distribution  string
	Architectures []string
	// Cluster is what the pods go by, whatever they install.
	Cluster Cluster
}

// Cluster is what pods of all runtimes have to go by.
type Cluster struct {
	// Account is the service account of the pods, which get no token of it.
	Account string
	// AnnotatesAppArmor says that the API server is older than 1.30, from which on profiles
	// of AppArmor are fields: before, it leaves those out without a word.
	AnnotatesAppArmor bool
}

// container is the name of a pod's only one, and annotationAppArmor the key that is for
// that.
const (
	container          = "install"
	annotationAppArmor = "container.apparmor.security.beta.kubernetes.io/" + container
)

// settingsFile is where a pod finds the settings.
const (
	readyDir     = "/run/fairlead-install"
	settingsDir  = "/etc/fairlead-install"
	settingsFile = "settings.json"
	hostDir      = "/host"
)

// SettingsMap is the ConfigMap that pods mount. Its name has the hash of its content:
// pods of an older revision keep what they were started with.
func (o *Order) SettingsMap() (*corev1.ConfigMap, error) {
	s := o.Settings
	if len(s.Handlers) == 0 && len(o.Handlers()) < len(o.Payload.Spec.Manifest.Handlers) {
		s.Handlers = o.Handlers() // an installer that is asked for all refuses what it cannot have
	}
	s.APIVersion, s.Kind = payload.APIVersion, payload.KindSettings
	var err error
	if s.Manifest, err = o.Payload.Spec.Manifest.Digest(); err != nil {
		return nil, fmt.Errorf("write the settings of ContainerRuntime %s/%s: %w", o.Runtime.Namespace, o.Runtime.Name, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write the settings of ContainerRuntime %s/%s: %w", o.Runtime.Namespace, o.Runtime.Name, err)
	}
	sum := sha256.Sum256(text)
	m := &corev1.ConfigMap{ObjectMeta: o.meta(names.Object(o.name(), hex.EncodeToString(sum[:])[:10]))}
	m.Data, m.Immutable = map[string]string{settingsFile: string(text)}, new(true)
	return m, nil
}

// Handlers are those that the nodes are to serve: what was asked for, or all that
// the pool's CRI runtime can have.
func (o *Order) Handlers() []string {
	return HandlersOf(&o.Payload.Spec.Manifest, o.Settings.Handlers, o.CRI)
}

// HandlersOf are those of a payload that a CRI runtime can have, of the wanted ones;
// none means all.
func HandlersOf(p *payload.RuntimePayload, wanted []string, cri v1alpha1.CRIName) []string {
	var out []string
	for i := range p.Handlers {
		h := &p.Handlers[i]
		if cri.Runs(h) && (len(wanted) == 0 || slices.Contains(wanted, h.Name)) {
			out = append(out, h.Name)
		}
	}
	return out
}

func (o *Order) name() string {
	return names.Object("fairlead", o.Type, o.Runtime.Spec.WorkerPool.Name)
}

// DaemonSetName is the name of that for some work. The work comes before the pool, whose
// name may end in it.
func (o *Order) DaemonSetName(work names.PhaseOf) string {
	if work == names.Cleanup {
		return names.Object("fairlead", "cleanup", o.Type, o.Runtime.Spec.WorkerPool.Name)
	}
	return o.name()
}

func (o *Order) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: o.Runtime.Namespace, Labels: Labels(o.Type, o.Runtime.Spec.WorkerPool.Name),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: gardener.SchemeGroupVersion.String(), Kind: "ContainerRuntime", Name: o.Runtime.Name, UID: o.Runtime.UID,
			// It blocks no deletion in the foreground: the garbage collector would take what
			// cleans the nodes again and again, however often it is made anew.
			Controller: new(true),
		}},
	}
}

// Labels are those of everything that is made for a type on a pool.
func Labels(typ, pool string) map[string]string {
	return map[string]string{names.ManagedBy: names.Manager, names.Type: typ, names.Pool: pool}
}

// DaemonSet has the pods that do some work. Its selector has the pool, the type and
// the work, so that no two share pods.
func (o *Order) DaemonSet(work names.PhaseOf, settings string) (*appsv1.DaemonSet, error) {
	places, err := o.view().Places()
	if err != nil {
		return nil, fmt.Errorf("make DaemonSet %s: %w", o.DaemonSetName(work), err)
	}
	pool := o.Runtime.Spec.WorkerPool.Name
	labels := Labels(o.Type, pool)
	labels[names.Work] = string(work)
	ds := &appsv1.DaemonSet{ObjectMeta: o.meta(o.DaemonSetName(work))}
	ds.Labels = labels
	ds.Spec = appsv1.DaemonSetSpec{
		Selector:       &metav1.LabelSelector{MatchLabels: labels},
		UpdateStrategy: strategy(work),
		// A pod is ready when the runtime was verified; nothing is gained by waiting.
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: o.pod(work)},
	}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{names.Phase + o.Type: work.Value(pool)}
	if work == names.Install && len(o.Architectures) > 0 {
		// A node is labelled only if it fits. Should it have been before that was looked
		// at, it must get no programs of another machine; to clean it up it may have any.
		ds.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: o.Architectures,
			}}}},
		}}}
	}
	mount(&ds.Spec.Template.Spec, places, settings)
	ds.Spec.Template.Annotations = map[string]string{names.AnnotationHandlers: strings.Join(o.Handlers(), ",")}
	if o.Cluster.AnnotatesAppArmor {
		ds.Spec.Template.Annotations[annotationAppArmor] = "unconfined"
		ds.Spec.Template.Spec.Containers[0].SecurityContext.AppArmorProfile = nil
	}
	// What a pod was made from: one that carries another revision has verified another
	// release, or other settings.
	text, err := json.Marshal(ds.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("write the pods of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	sum := sha256.Sum256(text)
	ds.Spec.Template.Annotations[names.AnnotationRevision] = hex.EncodeToString(sum[:])[:16]
	return ds, nil
}

// strategy is how pods are replaced by those of another release. A DaemonSet knows of no
// other one, so internal/operator/nodes keeps the pace of all of a pool and deletes the
// pods that install. What is being taken away serves nobody, and its nodes were admitted.
func strategy(work names.PhaseOf) appsv1.DaemonSetUpdateStrategy {
	if work == names.Install {
		return appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	}
	return appsv1.DaemonSetUpdateStrategy{
		Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromString("100%"))},
	}
}

// view is what the installer has to see of a node.
func (o *Order) view() view.Want {
	method := o.Restart.Method
	auto := method == "" || method == v1alpha1.RestartAuto
	return view.Want{
		Distribution: o.Distribution, BinaryPath: o.Runtime.Spec.BinaryPath, Devices: len(o.Payload.Spec.Manifest.Devices) > 0,
		Systemd: method == v1alpha1.RestartSystemd || auto, Command: method == v1alpha1.RestartCommand,
	}
}

// graceSeconds is how long a pod may take to end: one that is told to in the middle of a
// change undoes it, for which it may look for a minute whether the runtime has to be
// restarted, rests for one since the last restart and ten seconds for pods that begin, takes
// two at most to restart it, and one until it is back.
const graceSeconds = 330

// pod is what runs on a node. It is root there, and nothing in the cluster.
func (o *Order) pod(work names.PhaseOf) corev1.PodSpec {
	p := corev1.PodSpec{
		ServiceAccountName: o.Cluster.Account, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		HostPID: true, // it reads the kubelet's flags, and looks who runs from old folders
		// It has to come before all that needs the runtime, and to nodes that are born
		// with a taint.
		PriorityClassName:             "system-node-critical",
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		TerminationGracePeriodSeconds: new(int64(graceSeconds)),
		Containers: []corev1.Container{{
			Name: container, Image: o.Payload.Spec.Image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"/fairlead"}, Args: o.arguments(work),
			// What it writes there is its result; what it prints is for people.
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/fairlead", "install", "--ready"}}},
				PeriodSeconds: 5, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 5,
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			},
			SecurityContext: confined(),
		}},
	}
	for _, s := range o.Payload.Spec.PullSecrets {
		p.ImagePullSecrets = append(p.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return p
}

// capabilities are those that the installer needs, each for what is beside it; docs/operator.md
// has them for people.
var capabilities = []corev1.Capability{
	"CHOWN",        // a file of the runtime's configuration keeps its owner
	"DAC_OVERRIDE", // and may be of another one than root
	"FOWNER",       // and keeps its mode
	"SYS_CHROOT",   // containerd reads what was written, and a restart command runs, in the node's root
	"SYS_PTRACE",   // which programs run from the folder of an old version, by /proc/PID/exe
}

// confined is root on the node's files that are mounted, and nothing else.
func confined() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: new(int64(0)), Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		// The profile of a runtime lets nobody talk to systemd, and containers of SELinux
		// write to no file of the node.
		AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
		SELinuxOptions:  &corev1.SELinuxOptions{Type: "spc_t"},
	}
}

// mount gives a pod its settings, a place to say that it is ready, and what it has to see
// of the node.
func mount(p *corev1.PodSpec, places []view.Place, settings string) {
	add := func(v corev1.Volume, m corev1.VolumeMount) {
		m.Name = v.Name
		p.Volumes, p.Containers[0].VolumeMounts = append(p.Volumes, v), append(p.Containers[0].VolumeMounts, m)
	}
	for _, place := range places {
		source := &corev1.HostPathVolumeSource{Path: place.Path, Type: new(hostPathTypes[place.Kind])}
		m := corev1.VolumeMount{MountPath: path.Join(hostDir, place.Path), ReadOnly: !place.Write}
		if place.Live {
			m.MountPropagation = new(corev1.MountPropagationHostToContainer)
		}
		add(corev1.Volume{Name: volumeName(place.Path), VolumeSource: corev1.VolumeSource{HostPath: source}}, m)
	}
	add(corev1.Volume{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: settings}}}},
		corev1.VolumeMount{MountPath: settingsDir, ReadOnly: true})
	add(corev1.Volume{Name: "ready", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		corev1.VolumeMount{MountPath: readyDir})
}

var hostPathTypes = map[view.Kind]corev1.HostPathType{
	view.Folder: corev1.HostPathDirectory, view.Made: corev1.HostPathDirectoryOrCreate, view.File: corev1.HostPathFile,
}

// volumeName is that of a place of the node: a DNS label, which no two share.
func volumeName(at string) string {
	word := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, at), "-")
	sum := sha256.Sum256([]byte(at))
	return "host-" + strings.Trim(word[:min(len(word), 40)]+"-", "-") + "-" + hex.EncodeToString(sum[:])[:6]
}
