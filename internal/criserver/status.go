package criserver

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// Status says whether pods can run, and what the handlers can do.
func (s *Server) Status(ctx context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	handlers := s.cfg.Handlers.List()
	network := s.networkReady(ctx)
	resp := &cri.StatusResponse{
		Status:          &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{s.runtimeReady(handlers), network}},
		RuntimeHandlers: encodeHandlers(handlers),
		Features: &cri.RuntimeFeatures{
			SupplementalGroupsPolicy:  true,
			UserNamespacesHostNetwork: true,
			MountOptions:              true,
		},
	}
	if !r.GetVerbose() {
		return resp, nil
	}
	info := map[string]any{
		"config":   s.cfg.Settings,
		"handlers": byName(handlers),
		"version": map[string]string{
			"fairlead": s.cfg.Version, "cri": criVersion, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		},
		"network": map[string]any{"ready": network.GetStatus(), "message": network.GetMessage()},
	}
	if s.cfg.Details != nil {
		for name, value := range s.cfg.Details(ctx) {
			info[name] = value
		}
	}
	var err error
	resp.Info, err = encodeInfo(info)
	return resp, err
}

// byName is the list as one JSON object: crictl shows an object as such, but a
// list as a string with its quotes escaped.
func byName(list []pod.HandlerInfo) map[string]pod.HandlerInfo {
	out := make(map[string]pod.HandlerInfo, len(list))
	for _, h := range list {
		out[h.Name] = h
	}
	return out
}

// runtimeReady is true while one handler works: then some pods can run, and the
// others are refused one by one with the reason.
func (s *Server) runtimeReady(handlers []pod.HandlerInfo) *cri.RuntimeCondition {
	c := &cri.RuntimeCondition{Type: cri.RuntimeReady}
	select {
	case <-s.cfg.Ready:
	default:
		c.Reason, c.Message = "Starting", "the daemon has not read its pods yet"
		return c
	}
	var why []string
	for _, h := range handlers {
		c.Status = c.Status || h.Ready
		why = append(why, fmt.Sprintf("%s: %s", h.Name, h.Reason))
	}
	if c.Status {
		c.Reason, c.Message = defaultNotReady(handlers)
		return c
	}
	c.Reason, c.Message = "NoHandlerReady", "no runtime handler works on this node: "+strings.Join(why, "; ")
	if len(handlers) == 0 {
		c.Message = "there is no runtime handler on this node; install runc or crun, or name one in the configuration"
	}
	return c
}

// defaultNotReady says why pods that name no handler are refused, if they are.
func defaultNotReady(handlers []pod.HandlerInfo) (reason, message string) {
	for _, h := range handlers {
		if h.Default && !h.Ready {
			return "DefaultHandlerNotReady", fmt.Sprintf("pods that name no handler are refused: the default one, %s, does not work: %s", h.Name, h.Reason)
		}
	}
	return "", ""
}

func (s *Server) networkReady(ctx context.Context) *cri.RuntimeCondition {
	c := &cri.RuntimeCondition{Type: cri.NetworkReady, Status: true}
	if err := s.cfg.Network.Status(ctx); err != nil {
		c.Status, c.Reason, c.Message = false, "NetworkNotReady", err.Error()
	}
	return c
}

// encodeHandlers lists the handlers that work, and the default once more under
// the empty name.
func encodeHandlers(list []pod.HandlerInfo) []*cri.RuntimeHandler {
	var out []*cri.RuntimeHandler
	for _, h := range list {
		if !h.Ready {
			continue
		}
		features := &cri.RuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: h.Features.RecursiveReadOnlyMounts,
			UserNamespaces:          h.Features.UserNamespaces,
		}
		if h.Default {
			out = append(out, &cri.RuntimeHandler{Features: features})
		}
		out = append(out, &cri.RuntimeHandler{Name: h.Name, Features: features})
	}
	return out
}
