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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/manifest/fields"
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
}

// How long to wait for the trials of handlers: longer than the daemon lets one
// take. Each call waits a moment by itself.
const (
	trialWait  = 20 * time.Second
	trialPause = 50 * time.Millisecond
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
	status, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for its handlers: %w", err)
	}
	s := &Set{known: len(status.GetRuntimeHandlers()) > 0}
	found := map[string]Handler{}
	// Fairlead says more than the CRI has fields for; other runtimes do not.
	var details map[string]struct {
		Handler
		Features struct {
			Checkpoints   bool   `json:"checkpoints"`
			NoCheckpoints string `json:"noCheckpoints"`
		} `json:"features"`
	}
	if json.Unmarshal([]byte(status.GetInfo()["handlers"]), &details) == nil {
		for name, d := range details {
			s.known = true
			h := d.Handler
			h.Name, h.Checkpoints, h.NoCheckpoints = name, d.Features.Checkpoints, d.Features.NoCheckpoints
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

// Choice is what a pod's class says.
type Choice struct {
	Class    string // empty without one
	Handler  string // empty for the default
	Overhead corev1.ResourceList
}

// Resolve finds the handler of a pod. Errors start with the pod's origin.
func (s *Set) Resolve(p *manifest.Pod, classes map[string]*nodev1.RuntimeClass) (Choice, error) {
	name := ""
	if p.Spec.RuntimeClassName != nil {
		name = *p.Spec.RuntimeClassName
	}
	if name == "" {
		if len(p.Spec.Overhead) > 0 {
			return Choice{}, fmt.Errorf("%s: spec.overhead: only a RuntimeClass gives a pod overhead, and it names none: %w", p.Origin, errdefs.ErrInvalidArgument)
		}
		if s.known && !s.unnamed && s.Default() == "" {
			return Choice{}, fmt.Errorf("%s: names no RuntimeClass, and %s; %s: %w", p.Origin, s.noDefault(), s.describe(), errdefs.ErrUnavailable)
		}
		return Choice{}, nil
	}
	class, ok := classes[name]
	if !ok {
		return Choice{}, fmt.Errorf("%s: spec.runtimeClassName: there is no RuntimeClass %q%s: %w", p.Origin, name, existing(name, classes), errdefs.ErrNotFound)
	}
	choice := Choice{Class: name, Handler: class.Handler}
	if class.Overhead != nil {
		choice.Overhead = class.Overhead.PodFixed
	}
	if len(p.Spec.Overhead) > 0 && !sameResources(p.Spec.Overhead, choice.Overhead) {
		return Choice{}, fmt.Errorf("%s: spec.overhead: differs from that of RuntimeClass %q; leave it out: %w", p.Origin, name, errdefs.ErrInvalidArgument)
	}
	if err := s.check(class.Handler); err != nil {
		return Choice{}, fmt.Errorf("%s: RuntimeClass %q asks for the runtime handler %q, %w", p.Origin, name, class.Handler, err)
	}
	return choice, nil
}

// noDefault says why no handler runs pods without a class.
func (s *Set) noDefault() string {
	for _, h := range s.list {
		if h.Default {
			return fmt.Sprintf("the default handler %s (default_handler in the configuration) does not work here: %s", h.Name, h.Reason)
		}
	}
	return "no default handler works here"
}

// check says why a handler cannot be used.
func (s *Set) check(name string) error {
	if !s.known {
		return nil
	}
	for _, h := range s.list {
		if h.Name == name && h.Ready {
			return nil
		}
		if h.Name == name {
			return fmt.Errorf("which does not work on this machine: %s; %s: %w", h.Reason, s.describe(), errdefs.ErrUnavailable)
		}
	}
	return fmt.Errorf("which this machine does not have; %s. Install a runtime for it, or use a class whose handler is here: %w", s.describe(), errdefs.ErrNotFound)
}

// describe names the handlers that exist.
func (s *Set) describe() string {
	var ready []string
	for _, h := range s.list {
		switch {
		case h.Ready && h.Default:
			ready = append(ready, h.Name+" (default)")
		case h.Ready:
			ready = append(ready, h.Name)
		}
	}
	if len(ready) == 0 {
		return "no handler works here"
	}
	return "the handlers here are " + strings.Join(ready, ", ")
}

func existing(name string, classes map[string]*nodev1.RuntimeClass) string {
	if len(classes) == 0 {
		return " in the files given, nor any other; add a file that has it with another -f"
	}
	names := slices.Sorted(maps.Keys(classes))
	text := " in the files given; they have " + strings.Join(names, ", ")
	if near := fields.Nearest(name, names); near != "" {
		text += "; did you mean " + near + "?"
	}
	return text
}

func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}
