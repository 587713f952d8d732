package podspec

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestRecord wants back what was written, beside the preStop hook.
func TestRecord(t *testing.T) {
	want := Record{Hash: "h", Crashes: 3, TerminationPath: "/t"}
	ct := &corev1.Container{Name: "c", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}}
	cfg, err := Container(t.Context(), testContext(*ct), Attempt{Container: ct, Record: want})
	if err != nil {
		t.Fatal(err)
	}
	if got := RecordOf(cfg.Annotations); got != want || PreStopOf(cfg.Annotations) == nil {
		t.Errorf("%v of %v", got, cfg.Annotations)
	}
	for _, broken := range []string{"", "x", "-4", "99999999999999999999"} {
		if got := RecordOf(map[string]string{AnnotationCrashes: broken}); got != (Record{}) {
			t.Errorf("%q: %v", broken, got)
		}
	}
}

func hashedContainer() corev1.Container {
	return corev1.Container{
		Name: "c", Image: "i", Command: []string{"run"}, Args: []string{"a"}, WorkingDir: "/w",
		Env:          []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
		EnvFrom:      []corev1.EnvFromSource{{Prefix: "p", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}},
		VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
		Resources:    corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "example.com/gpu": resource.MustParse("2")}},
	}
}

// TestHash holds a value that containers out there carry: if it changes, all of
// them are made anew.
func TestHash(t *testing.T) {
	pod := &corev1.Pod{}
	ct := hashedContainer()
	first := Hash(pod, &ct)
	if first != "05d877d2d38a8b71" {
		t.Errorf("the hash of an unchanged container is %s now", first)
	}
	if ct.Ports = []corev1.ContainerPort{{ContainerPort: 1}}; !reflect.DeepEqual(ct.Resources, hashedContainer().Resources) {
		t.Error("the container was changed")
	}
	for name, change := range map[string]func(*corev1.Container){
		"probes": func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{PeriodSeconds: 1} },
		"hooks":  func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}} },
		"cpu":    func(c *corev1.Container) { c.Resources.Limits["cpu"] = resource.MustParse("2") },
		"memory": func(c *corev1.Container) {
			c.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("2")}
		},
		"resizePolicy": func(c *corev1.Container) { c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu"}} },
		"a default":    func(c *corev1.Container) { c.TerminationMessagePath = "/dev/termination-log" },
		"a version":    func(c *corev1.Container) { c.Env[1].ValueFrom.FieldRef.APIVersion = "v1" },
		"empty": func(c *corev1.Container) {
			c.VolumeDevices = []corev1.VolumeDevice{}
			c.SecurityContext = &corev1.SecurityContext{}
		},
		"the way of a number": func(c *corev1.Container) { c.Resources.Limits["example.com/gpu"] = resource.MustParse("2000m") },
		"pull policy":         func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways },
	} {
		c := hashedContainer()
		if change(&c); Hash(pod, &c) != first {
			t.Errorf("%s: it is another", name)
		}
	}
	seen := map[string]string{first: "unchanged"}
	for name, change := range map[string]func(*corev1.Container){
		"image":       func(c *corev1.Container) { c.Image = "j" },
		"command":     func(c *corev1.Container) { c.Command[0] = "walk" },
		"args":        func(c *corev1.Container) { c.Command, c.Args = []string{"run", "a"}, nil },
		"env":         func(c *corev1.Container) { c.Env[0].Value = "c" },
		"env order":   func(c *corev1.Container) { c.Env[0], c.Env[1] = c.Env[1], c.Env[0] },
		"envFrom":     func(c *corev1.Container) { c.EnvFrom[0].SecretRef.Name = "t" },
		"mount":       func(c *corev1.Container) { c.VolumeMounts[0].ReadOnly = true },
		"root":        func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr[int64](0)} },
		"not root":    func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{Privileged: ptr(false)} },
		"devices":     func(c *corev1.Container) { c.Resources.Limits["example.com/gpu"] = resource.MustParse("3") },
		"claims":      func(c *corev1.Container) { c.Resources.Claims = []corev1.ResourceClaim{{Name: "x"}} },
		"stopSignal":  func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{StopSignal: ptr(corev1.SIGUSR1)} },
		"termination": func(c *corev1.Container) { c.TerminationMessagePath = "/t" },
		"tty":         func(c *corev1.Container) { c.TTY = true },
	} {
		c := hashedContainer()
		change(&c)
		h := Hash(pod, &c)
		if seen[h] != "" {
			t.Errorf("%s: the same as %s", name, seen[h])
		}
		seen[h] = name
	}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr[int64](1)}
	if ct := hashedContainer(); seen[Hash(pod, &ct)] != "" {
		t.Error("the pod's user does not count")
	}
}

// TestHashedFields wants every field of a container either in the hash or known to
// be left out: a new one has to be thought of.
func TestHashedFields(t *testing.T) {
	left := words("ports resources resizePolicy restartPolicy restartPolicyRules livenessProbe readinessProbe startupProbe lifecycle terminationMessagePolicy imagePullPolicy")
	for _, of := range []any{corev1.Container{}, corev1.SecurityContext{}, corev1.PodSecurityContext{}, corev1.VolumeMount{}, corev1.EnvVar{}, corev1.EnvVarSource{}, corev1.EnvFromSource{}} {
		for f := range reflect.TypeOf(of).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !hashed[name] && !left[name] && !words("windowsOptions sysctls fsGroupChangePolicy seLinuxChangePolicy")[name] {
				t.Errorf("%T.%s is neither hashed nor left out", of, name)
			}
		}
	}
}

func TestAttempt(t *testing.T) {
	ct := &corev1.Container{Name: "c", Lifecycle: &corev1.Lifecycle{StopSignal: ptr(corev1.Signal("SIGRTMIN+2"))}}
	c := testContext(*ct)
	c.Pod.Spec.HostUsers, c.CgroupParent = ptr(false), "/kubepods/podu"
	c.Userns = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}}
	ct.Env = []corev1.EnvVar{{Name: "OWN", Value: "mine"}}
	cfg, err := Container(t.Context(), c, Attempt{
		Container: ct, Target: "t", Record: Record{Hash: "h"}, Given: Given{
			Devices: []*runtimeapi.Device{{HostPath: "/dev/x"}}, CDI: []*runtimeapi.CDIDevice{{Name: "example.com/gpu=0"}},
			Mounts: []*runtimeapi.Mount{{ContainerPath: "/lib/x"}}, Env: map[string]string{"X_DEVICES": "0", "OWN": "theirs"},
			Annotations: map[string]string{"x": "y", AnnotationHash: "theirs"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := cfg.Linux.SecurityContext.NamespaceOptions
	if n.Pid != runtimeapi.NamespaceMode_TARGET || n.TargetId != "t" || n.UsernsOptions != c.Userns {
		t.Errorf("namespaces %v", n)
	}
	if len(cfg.Devices) != 1 || len(cfg.CDIDevices) != 1 || cfg.StopSignal != runtimeapi.Signal_SIGNAL_SIGRTMINPLUS2 {
		t.Errorf("%v, %v, %v", cfg.Devices, cfg.CDIDevices, cfg.StopSignal)
	}
	has := map[string]int{}
	for _, e := range cfg.Envs {
		has[e.Key+"="+string(e.Value)]++
	}
	if has["X_DEVICES=0"] != 1 || has["OWN=mine"] != 1 || has["OWN=theirs"] != 0 || cfg.Mounts[len(cfg.Mounts)-1].ContainerPath != "/lib/x" || cfg.Annotations["x"] != "y" || cfg.Annotations[AnnotationHash] != "h" {
		t.Errorf("%v, %v, %v", cfg.Envs, cfg.Mounts, cfg.Annotations)
	}
	box := Sandbox(c).Linux
	if box.CgroupParent != c.CgroupParent || box.SecurityContext.NamespaceOptions.UsernsOptions != c.Userns {
		t.Errorf("sandbox %v", box)
	}
	c.Pod.Spec.HostUsers = nil
	if got := Sandbox(c).Linux.SecurityContext.NamespaceOptions.UsernsOptions; got != nil {
		t.Errorf("a pod with the node's users has %v", got)
	}
}
