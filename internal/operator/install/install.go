package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// Order is a runtime for the nodes of a pool.
type Order struct {
	Runtime  *gardener.ContainerRuntime
	Type     string // by its own name
	Payload  *v1alpha1.RuntimePayload
	Settings payload.InstallSettings
	// CRI, Restart and MaxUnavailable are those of the pool.
	CRI            v1alpha1.CRIName
	Restart        v1alpha1.Restart
	MaxUnavailable *intstr.IntOrString
	// Account is the service account of the pods, which get no token of it.
	Account string
}

// settingsFile is where a pod finds the settings.
const (
	settingsDir  = "/etc/fairlead-install"
	settingsFile = "settings.json"
	hostDir      = "/host"
)

// SettingsMap is the ConfigMap that pods mount. Its name has the hash of its content:
// pods of an older revision keep what they were started with.
func (o *Order) SettingsMap() (*corev1.ConfigMap, error) {
	s := o.Settings
	s.APIVersion, s.Kind = payload.APIVersion, payload.KindSettings
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write the settings of ContainerRuntime %s/%s: %w", o.Runtime.Namespace, o.Runtime.Name, err)
	}
	sum := sha256.Sum256(text)
	m := &corev1.ConfigMap{ObjectMeta: o.meta(names.Object(o.name(), hex.EncodeToString(sum[:])[:10]))}
	m.Data, m.Immutable = map[string]string{settingsFile: string(text)}, new(true)
	return m, nil
}

func (o *Order) name() string {
	return names.Object("fairlead", o.Type, o.Runtime.Spec.WorkerPool.Name)
}

// DaemonSetName is the name of that for some work.
func (o *Order) DaemonSetName(work names.PhaseOf) string {
	if work == names.Cleanup {
		return names.Object("fairlead", o.Type, o.Runtime.Spec.WorkerPool.Name, "cleanup")
	}
	return o.name()
}

func (o *Order) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: o.Runtime.Namespace, Labels: Labels(o.Type, o.Runtime.Spec.WorkerPool.Name),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: gardener.SchemeGroupVersion.String(), Kind: "ContainerRuntime", Name: o.Runtime.Name, UID: o.Runtime.UID,
			Controller: new(true), BlockOwnerDeletion: new(true),
		}},
	}
}

// Labels are those of everything that is made for a type on a pool.
func Labels(typ, pool string) map[string]string {
	return map[string]string{names.ManagedBy: names.Manager, names.Type: typ, names.Pool: pool}
}

// DaemonSet has the pods that do some work. Its selector has the pool, the type and
// the work, so that no two share pods.
func (o *Order) DaemonSet(work names.PhaseOf, settings string) *appsv1.DaemonSet {
	pool := o.Runtime.Spec.WorkerPool.Name
	labels := Labels(o.Type, pool)
	labels[names.Work] = string(work)
	ds := &appsv1.DaemonSet{ObjectMeta: o.meta(o.DaemonSetName(work))}
	ds.Labels = labels
	most := intstr.FromInt32(1)
	if o.MaxUnavailable != nil {
		most = *o.MaxUnavailable
	}
	if work == names.Cleanup {
		most = intstr.FromString("100%") // what is being taken away serves nobody
	}
	ds.Spec = appsv1.DaemonSetSpec{
		Selector:       &metav1.LabelSelector{MatchLabels: labels},
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &most}},
		// A pod is ready when the runtime was verified; nothing is gained by waiting.
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: o.pod(work, settings)},
	}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{names.Phase + o.Type: work.Value(pool)}
	return ds
}

// pod is what runs on a node. It is root there, and nothing in the cluster.
func (o *Order) pod(work names.PhaseOf, settings string) corev1.PodSpec {
	p := corev1.PodSpec{
		ServiceAccountName: o.Account, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		HostPID: true, // it restarts the CRI runtime, and outlives no pod by that
		// It has to come before all that needs the runtime, and to nodes that are born
		// with a taint.
		PriorityClassName:             "system-node-critical",
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		TerminationGracePeriodSeconds: new(int64(30)),
		Containers: []corev1.Container{{
			Name: "install", Image: o.Payload.Spec.Image, ImagePullPolicy: corev1.PullIfNotPresent,
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
			SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
		}},
	}
	for _, s := range o.Payload.Spec.PullSecrets {
		p.ImagePullSecrets = append(p.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	mount := func(name, path string, source corev1.VolumeSource, readOnly bool) {
		p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		m := corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly}
		p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, m)
	}
	directory := corev1.HostPathDirectory
	mount("host", hostDir, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: &directory}}, false)
	mount("settings", settingsDir, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: settings}}}, true)
	return p
}
