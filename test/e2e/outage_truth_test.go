package e2e_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/e2e/cluster"
)

// diary is what a container has written down.
func (s *scene) diary(name string) string {
	b, err := os.ReadFile(filepath.Join(s.folder, name+".diary"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Fatal(err)
	}
	return string(b)
}

// awaitDiary waits until a container has written something down.
func (s *scene) awaitDiary(name, what string) {
	s.Helper()
	pattern := regexp.MustCompile(what + "\n")
	eventually(s.T, func() error {
		if said := s.diary(name); !pattern.MatchString(said) {
			return fmt.Errorf("container %s has written %q, and %q is waited for", name, said, what)
		}
		return nil
	})
}

// lives are the containers of all pods, by the status.
func (s *scene) lives() map[string]string {
	s.Helper()
	out := map[string]string{}
	for _, p := range s.pods() {
		for _, c := range p.Status.ContainerStatuses {
			out[p.Name] += c.ContainerID + " "
		}
	}
	return out
}

func (s *scene) pods() []corev1.Pod {
	s.Helper()
	var list corev1.PodList
	s.api.must(s.T, http.MethodGet, podsOf(stage), nil, &list)
	return list.Items
}

// untrue is what of the pods is not as it was to become, what the API server says of
// containers that the runtime does not have so, and what is left of pods that are gone.
func (s *scene) untrue() error {
	var wrong []error
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	has, err := s.had()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, p := range s.pods() {
		there[p.Name] = true
		want, ok := s.wants[p.Name]
		if !ok {
			say("pod %s is still there", p.Name)
			continue
		}
		if p.Status.Phase != want.phase || isReady(&p) != want.ready && want.restarts >= 0 {
			say("pod %s is %s, ready %t, and is to be %+v", p.Name, p.Status.Phase, isReady(&p), want)
		}
		if len(p.Status.ContainerStatuses) != len(p.Spec.Containers) {
			say("pod %s has the containers %+v", p.Name, p.Status.ContainerStatuses)
			continue
		}
		for i, c := range p.Status.ContainerStatuses {
			of := fate{phase: want.phase, ready: want.ready}
			if i == len(p.Spec.Containers)-1 {
				of = want
			}
			wrong = append(wrong, of.differs(p.Name, c), s.matches(p.Name, c, has))
			delete(has, p.Name+"."+c.Name)
		}
	}
	for name := range s.wants {
		if !there[name] {
			say("pod %s is not there", name)
		}
	}
	for name, left := range has {
		say("the runtime has containers %s, whose pod is gone: %v", name, left)
	}
	return errors.Join(append(wrong, s.sandboxes(there))...)
}

// had are the containers of the runtime by pod and name, the latest of each first.
func (s *scene) had() (map[string][]*runtimeapi.Container, error) {
	list, err := s.runtime.ListContainers(s.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	out := map[string][]*runtimeapi.Container{}
	for _, c := range list.Containers {
		if c.Labels["io.kubernetes.pod.namespace"] == stage {
			name := c.Labels["io.kubernetes.pod.name"] + "." + c.Metadata.Name
			out[name] = append(out[name], c)
		}
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.Metadata.Attempt, a.Metadata.Attempt) })
	}
	return out, nil
}

// differs says what of a container is not as it was to become.
func (want fate) differs(pod string, c corev1.ContainerStatus) error {
	ended := c.LastTerminationState.Terminated
	if want.phase != corev1.PodRunning {
		ended = c.State.Terminated
	}
	switch {
	case want.restarts < 0:
		return nil
	case c.RestartCount != want.restarts, c.Ready != want.ready, (want.phase == corev1.PodRunning) != (c.State.Running != nil):
	case want.restarts > 0 && ended == nil, ended != nil && ended.ExitCode != want.code:
	default:
		return nil
	}
	return fmt.Errorf("container %s of pod %s is to be %+v, and is %+v", c.Name, pod, want, c)
}

// matches says what the API server says of a container that the runtime, or the container
// itself, does not.
func (s *scene) matches(pod string, c corev1.ContainerStatus, has map[string][]*runtimeapi.Container) error {
	name := fmt.Sprintf("%s.%s", pod, c.Name)
	all := has[name]
	if len(all) == 0 {
		return fmt.Errorf("the runtime has no container %s, whose status is %+v", name, c)
	}
	latest := all[0]
	running := latest.State == runtimeapi.ContainerState_CONTAINER_RUNNING
	_, id, _ := strings.Cut(c.ContainerID, "://")
	if id != latest.Id || c.RestartCount != int32(latest.Metadata.Attempt) || running != (c.State.Running != nil) {
		return fmt.Errorf("container %s is %+v, and the runtime has %v", name, c, latest)
	}
	for _, other := range all[1:] {
		if other.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return fmt.Errorf("of container %s the runtime runs %v beside %v", name, other, latest)
		}
	}
	// Each of them began once, and each but one that runs has ended by itself.
	said := s.diary(strings.Replace(name, "-"+cluster.NodeName+".", ".", 1))
	starts, ends := int32(strings.Count(said, "started\n")), int32(strings.Count(said, "ended "))
	if want := c.RestartCount + 1; starts != want || running && ends != want-1 || !running && ends != want || strings.Contains(said, "stopped") {
		return fmt.Errorf("container %s is %+v, and has written %q", name, c, said)
	}
	return nil
}

// sandboxes says which of the runtime's are of no pod that is there.
func (s *scene) sandboxes(there map[string]bool) error {
	list, err := s.runtime.ListPodSandbox(s.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	ready := map[string]int{}
	for _, b := range list.Items {
		switch {
		case b.Metadata.Namespace != stage:
		case !there[b.Metadata.Name]:
			err = errors.Join(err, fmt.Errorf("sandbox %s of pod %s is left", b.Id, b.Metadata.Name))
		case b.State == runtimeapi.PodSandboxState_SANDBOX_READY:
			ready[b.Metadata.Name]++
		}
	}
	for name, n := range ready {
		if n > 1 {
			err = errors.Join(err, fmt.Errorf("pod %s has %d sandboxes", name, n))
		}
	}
	return err
}

// wantEvents wants each restart to be told of.
func (s *scene) wantEvents() {
	s.Helper()
	if cluster.Agent(*agent) != cluster.FairleadNode {
		return
	}
	wants := map[string]bool{}
	for i, told := range s.outage.told {
		for pod, end := range map[string]string{"stays": "main ended with exit code 3", "tries": "main ended with exit code 4", "two": "side ended with exit code 6"} {
			if told {
				wants[fmt.Sprintf("%s-%d Restarting: Container %s; restarting it", pod, i, end)] = true
			}
		}
	}
	eventually(s.T, func() error {
		var list corev1.EventList
		s.api.must(s.T, http.MethodGet, "/api/v1/namespaces/"+stage+"/events", nil, &list)
		for _, e := range list.Items {
			delete(wants, e.InvolvedObject.Name+" "+e.Reason+": "+e.Message)
		}
		if len(wants) > 0 {
			return fmt.Errorf("no event tells: %s", strings.Join(slices.Sorted(maps.Keys(wants)), "; "))
		}
		return nil
	})
}
