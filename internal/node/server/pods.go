package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// tell answers with JSON.
func tell(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // only the one who asked is gone
	return nil
}

func list(pods []corev1.Pod) *corev1.PodList {
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+string(a.UID), b.Namespace+"/"+b.Name+"/"+string(b.UID))
	})
	return &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods}
}

// pods are those that the node is to run, with their statuses.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) error {
	pods := []corev1.Pod{}
	for _, p := range s.cfg.Node.Pods() {
		pods = append(pods, *p)
	}
	return tell(w, list(pods))
}

// runningPods are those that the runtime has, whoever wanted them.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) error {
	sandboxes, err := s.cfg.Runtime.ListPodSandbox(r.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return fmt.Errorf("list the pods of the runtime: %w", err)
	}
	containers, err := s.cfg.Runtime.ListContainers(r.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return fmt.Errorf("list the containers of the runtime: %w", err)
	}
	of := map[string][]corev1.Container{}
	for _, p := range sandboxes.GetItems() {
		of[p.GetId()] = []corev1.Container{}
	}
	for _, c := range containers.GetContainers() {
		image := c.GetImage().GetUserSpecifiedImage()
		if image == "" {
			image = c.GetImage().GetImage()
		}
		of[c.GetPodSandboxId()] = append(of[c.GetPodSandboxId()], corev1.Container{Name: c.GetMetadata().GetName(), Image: image})
	}
	pods := []corev1.Pod{}
	for _, p := range sandboxes.GetItems() {
		if p.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		m := p.GetMetadata()
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Namespace: m.GetNamespace(), UID: types.UID(m.GetUid()), CreationTimestamp: metav1.NewTime(time.Unix(0, p.GetCreatedAt()))},
			Spec:       corev1.PodSpec{Containers: of[p.GetId()]},
		})
	}
	return tell(w, list(pods))
}

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) error {
	return tell(w, map[string]any{"kubeletconfig": s.cfg.Configz()})
}
