package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// labelUID is the label by which agents find what they have made.
const labelUID = "io.kubernetes.pod.uid"

// pod is the one that the path names.
func (s *Server) pod(r *http.Request) (*corev1.Pod, error) {
	namespace, name, uid := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid")
	p, ok := s.cfg.Node.Pod(namespace, name, types.UID(uid))
	if !ok {
		if uid != "" {
			return nil, refuse(http.StatusNotFound, "pod does not exist: there is no %s/%s with uid %s on this node", namespace, name, uid)
		}
		return nil, refuse(http.StatusNotFound, "pod does not exist: there is no %s/%s on this node", namespace, name)
	}
	return p, nil
}

// statusOf is the status of a container of any kind; nil if there is none.
func statusOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses} {
		if i := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// has says whether a pod is to have a container.
func has(p *corev1.Pod, name string) bool {
	is := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(p.Spec.Containers, is) || slices.ContainsFunc(p.Spec.InitContainers, is) ||
		slices.ContainsFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// runtimeID is the id without the name of the runtime before it.
func runtimeID(id string) string {
	if _, after, ok := strings.Cut(id, "://"); ok {
		return after
	}
	return id
}

// runningID is the id of the container that the path names, which must run.
func (s *Server) runningID(r *http.Request) (string, error) {
	p, err := s.pod(r)
	if err != nil {
		return "", err
	}
	name := r.PathValue("container")
	if !has(p, name) {
		return "", refuse(http.StatusNotFound, "container not found (%q)", name)
	}
	st := statusOf(p, name)
	if st == nil || st.State.Running == nil || st.ContainerID == "" {
		return "", refuse(http.StatusInternalServerError, "container not found (%q): %s", name, state(st))
	}
	return runtimeID(st.ContainerID), nil
}

// state says in words why a container does not run.
func state(st *corev1.ContainerStatus) string {
	switch {
	case st != nil && st.State.Terminated != nil:
		return fmt.Sprintf("it has ended with exit code %d", st.State.Terminated.ExitCode)
	case st != nil && st.State.Waiting != nil && st.State.Waiting.Reason != "":
		return "it is waiting to start: " + st.State.Waiting.Reason
	}
	return "it does not run yet"
}

// logged is the id of the container whose log is asked for: the one that is
// there, or the one before.
func logged(p *corev1.Pod, name string, previous bool) (string, error) {
	if !has(p, name) {
		return "", refuse(http.StatusNotFound, "container %q not found in pod %q", name, p.Name)
	}
	st := statusOf(p, name)
	if st == nil {
		return "", refuse(http.StatusBadRequest, "container %q in pod %q is not available", name, p.Name)
	}
	before := ""
	if st.LastTerminationState.Terminated != nil {
		before = runtimeID(st.LastTerminationState.Terminated.ContainerID)
	}
	if previous {
		if before == "" {
			return "", refuse(http.StatusBadRequest, "previous terminated container %q in pod %q not found", name, p.Name)
		}
		return before, nil
	}
	id := before
	switch {
	case st.State.Running != nil:
		id = runtimeID(st.ContainerID)
	case st.State.Terminated != nil && st.State.Terminated.ContainerID != "":
		id = runtimeID(st.State.Terminated.ContainerID)
	}
	switch {
	case id != "":
		return id, nil
	case st.State.Terminated != nil:
		return "", refuse(http.StatusBadRequest, "container %q in pod %q is terminated", name, p.Name)
	case st.State.Waiting != nil:
		return "", refuse(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", name, p.Name, waiting(st.State.Waiting.Reason))
	}
	return "", refuse(http.StatusBadRequest, "container %q in pod %q is not available", name, p.Name)
}

// waiting is a reason in the words that users of kubectl logs know.
func waiting(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	case "":
		return "ContainerCreating"
	}
	return reason
}

// sandbox is the id of a pod's newest sandbox that is up.
func (s *Server) sandbox(ctx context.Context, p *corev1.Pod) (string, error) {
	resp, err := s.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{labelUID: string(p.UID)},
	}})
	if err != nil {
		return "", fmt.Errorf("find the sandbox of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	var found *runtimeapi.PodSandbox
	for _, item := range resp.GetItems() {
		if item.GetMetadata().GetUid() == string(p.UID) && (found == nil || item.GetCreatedAt() > found.GetCreatedAt()) {
			found = item
		}
	}
	if found == nil {
		return "", refuse(http.StatusNotFound, "pod %s/%s has no sandbox that is up: it has not started, or has ended", p.Namespace, p.Name)
	}
	return found.GetId(), nil
}
