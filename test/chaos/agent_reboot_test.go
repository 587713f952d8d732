package chaos

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// After a reboot nothing of any pod is left but what is on the disk. The pods that are
// to run do so again, those that have ended do not, nor one that is to run once and had begun,
// and one that was deleted while the machine was off goes.
func TestAgentReboot(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	once := func(code string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.Containers[0].Command = []string{"sh", "-c", "exit " + code}
		}
	}
	c.put("stays", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "kept", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kept", MountPath: "/kept"}}
		p.Spec.Containers[0].Command = []string{"sh", "-c", "echo started >>/kept/starts; trap exit TERM; sleep 1000000 & wait"}
	})
	c.put("goes")
	c.put("once", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	c.put("done", once("0"))
	c.put("failed", once("3"))
	ended := func(name string, phase corev1.PodPhase) bool {
		p := c.all()[name]
		return p != nil && p.Status.Phase == phase && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Terminated != nil
	}
	all := func() bool {
		return c.ready("stays") && ended("done", corev1.PodSucceeded) && ended("failed", corev1.PodFailed)
	}
	c.eventually("the pods run", func() bool { return all() && c.ready("goes") && c.ready("once") })
	before := c.all()

	c.killAgent()
	crash(c.Node, false)
	if err := os.RemoveAll(c.Dir + "/agentrun"); err != nil {
		t.Fatal(err)
	}
	c.remove("goes")
	c.Start()
	c.startAgent()

	c.eventually("the pods run again", func() bool {
		after := c.all()
		return all() && runs(after["stays"]) != runs(before["stays"]) && after["goes"] == nil && ended("once", corev1.PodFailed)
	})
	after := c.all()
	for _, name := range []string{"done", "failed"} {
		if a, b := after[name].Status, before[name].Status; a.ContainerStatuses[0].ContainerID != b.ContainerStatuses[0].ContainerID || !a.StartTime.Equal(b.StartTime) {
			t.Errorf("pod %s had ended, and is another one after the reboot: %+v, was %+v", name, a, b)
		}
	}
	starts, err := os.ReadFile(c.root + "/run/" + string(after["stays"].UID) + "/volumes/kept/starts")
	if err != nil || string(starts) != "started\nstarted\n" {
		t.Errorf("the emptyDir has %q: %v", starts, err)
	}
}
