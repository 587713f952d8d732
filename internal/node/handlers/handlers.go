// Package handlers asks a CRI endpoint which runtime handlers it has, and
// resolves the RuntimeClass of a Pod to one of them.
//
// A class never resolves to another handler than the one that it names: where
// that one is missing, the pod is refused.
package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	nodev1 "k8s.io/api/node/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/manifest"
)

// Handler is a runtime handler as its endpoint reports it.
type Handler struct {
	Name    string `json:"name"`
	Kind    string `json:"kind,omitempty"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Default bool   `json:"default"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"` // why it is not ready
	Flaws   []Flaw `json:"flaws,omitempty"`  // that are known of its version
	// Trying says that Fairlead does not know yet whether it works.
	Trying bool `json:"trying,omitempty"`

	RecursiveReadOnlyMounts bool `json:"recursiveReadOnlyMounts"`
	UserNamespaces          bool `json:"userNamespaces"`
	// Of these the CRI says nothing: only Fairlead does.
	Checkpoints   bool   `json:"checkpoints"`
	NoCheckpoints string `json:"noCheckpoints,omitempty"` // why there are none

	// features are all that Fairlead has seen it do, by the names of policies; nil
	// where another runtime says nothing of the kind.
	features []string
}

// Flaw is a security flaw of a version of a runtime.
type Flaw struct {
	ID       string   `json:"id"` // "CVE-2025-31133"
	What     string   `json:"what"`
	MendedIn []string `json:"mendedIn"` // for each branch the first version without it
}

// Set is the handlers of one endpoint.
type Set struct {
	list    []Handler // by name
	unnamed bool      // an empty name is answered
	// known is false for an endpoint too old to report handlers: then only
	// RunPodSandbox can tell.
	known bool
	// strictGroups says that the runtime heeds supplementalGroupsPolicy (KEP-3619).
	strictGroups bool
	appArmor     bool // is enabled in the kernel
}

// How long to wait for the trials of handlers: longer than the daemon lets one
// take. Each call waits a moment by itself.
const (
	trialWait  = 20 * time.Second
	trialPause = 50 * time.Millisecond
	askLimit   = 2 * time.Minute // of one question
)

// List asks the endpoint. A daemon that has just started is still trying its
// handlers. List waits for those that are named, and for all if none is or one
// of the names is empty, which stands for the default.
func List(ctx context.Context, client runtimeapi.RuntimeServiceClient, wanted ...string) (*Set, error) {
	waits, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	for {
		s, err := ask(ctx, client)
		if err != nil || !s.trying(wanted) {
			return s, err
		}
		select {
		case <-waits.Done():
			return s, ctx.Err()
		case <-time.After(trialPause):
		}
	}
}

// Wanted is the handlers that pods are going to be on, for List.
func Wanted(pods []*manifest.Pod, classes map[string]*nodev1.RuntimeClass) []string {
	var names []string
	for _, p := range pods {
		name := ""
		if class := p.Spec.RuntimeClassName; class != nil && *class != "" {
			if classes[*class] == nil {
				continue // refused whatever the handlers are
			}
			name = classes[*class].Handler
		}
		names = append(names, name)
	}
	return names
}

func (s *Set) trying(wanted []string) bool {
	every := len(wanted) == 0 || slices.Contains(wanted, "")
	return slices.ContainsFunc(s.list, func(h Handler) bool {
		return h.Trying && (every || slices.Contains(wanted, h.Name))
	})
}

func ask(ctx context.Context, client runtimeapi.RuntimeServiceClient) (*Set, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	status, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for its handlers: %w", err)
	}
	s := &Set{known: len(status.GetRuntimeHandlers()) > 0, strictGroups: status.GetFeatures().GetSupplementalGroupsPolicy(), appArmor: appArmorEnabled()}
	found := map[string]Handler{}
	// Fairlead says more than the CRI has fields for; other runtimes do not.
	var details map[string]struct {
		Handler
		Features map[string]any `json:"features"`
	}
	if json.Unmarshal([]byte(status.GetInfo()["handlers"]), &details) == nil {
		for name, d := range details {
			s.known = true
			h := d.Handler
			h.Name, h.features = name, had(d.Features)
			h.Checkpoints, _ = d.Features["checkpoints"].(bool)
			h.NoCheckpoints, _ = d.Features["noCheckpoints"].(string)
			found[name] = h
		}
	}
	for _, h := range status.GetRuntimeHandlers() {
		if h.GetName() == "" {
			s.unnamed = true
			continue
		}
		d := found[h.GetName()]
		d.Name, d.Ready = h.GetName(), true
		d.RecursiveReadOnlyMounts = h.GetFeatures().GetRecursiveReadOnlyMounts()
		d.UserNamespaces = h.GetFeatures().GetUserNamespaces()
		found[d.Name] = d
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		s.list = append(s.list, found[name])
	}
	return s, nil
}

// had are the features that are there, among reasons why others are not.
func had(features map[string]any) []string {
	out := []string{}
	for name, has := range features {
		if has == true {
			out = append(out, name)
		}
	}
	return out
}

// Of is the handler that runs a pod. The CRI only repeats what was asked for,
// which is empty for the default; Fairlead's verbose answer says which that was.
func Of(r *runtimeapi.PodSandboxStatusResponse) string {
	if h := r.GetStatus().GetRuntimeHandler(); h != "" {
		return h
	}
	var info struct {
		Handler string `json:"runtimeHandler"`
	}
	if json.Unmarshal([]byte(r.GetInfo()["info"]), &info) != nil {
		return ""
	}
	return info.Handler
}

// All lists the handlers by name, those that do not work included.
func (s *Set) All() []Handler { return slices.Clone(s.list) }

// Default is the name of the handler that runs pods without a class, or empty
// where the endpoint does not say.
func (s *Set) Default() string {
	for _, h := range s.list {
		if h.Default && h.Ready {
			return h.Name
		}
	}
	return ""
}

// Features are what a handler can do. The empty name means the default.
func (s *Set) Features(name string) *runtimeapi.RuntimeHandlerFeatures {
	if name == "" {
		name = s.Default()
	}
	for _, h := range s.list {
		if h.Name == name {
			return &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: h.RecursiveReadOnlyMounts, UserNamespaces: h.UserNamespaces}
		}
	}
	return nil
}
