package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/cluster/pace"
)

// requestPatience is how long one request may take. What it was for is tried
// again, with what is true by then.
const requestPatience = 10 * time.Second

// clockDifference is how far apart the clocks of two nodes may be.
const clockDifference = 5 * time.Minute

// Registration is what is wanted of a Node object.
type Registration struct {
	Name, Hostname string
	Labels         map[string]string // --node-labels
	Annotations    map[string]string
	Taints         []corev1.Taint // --register-with-taints
	ProviderID     string
	// Status is the first one of a node that is new: it has its capacity and its
	// conditions from the start.
	Status func() corev1.NodeStatus
	// MachineID and SystemUUID tell this machine from another of the same name. Machines that
	// were copied may have one machine id.
	MachineID, SystemUUID string
	// Warn tells, by an event of the node, of another machine of that name. It must not wait;
	// nil tells nobody.
	Warn func(reason, message string)
}

// Reasons of events of the node.
const (
	NameTaken     = "NodeNameTaken"
	NameInherited = "NodeNameInherited"
)

// CheckLabels says which labels a node may not give itself: the admission plugin
// NodeRestriction refuses them.
func CheckLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if why := validation.IsQualifiedName(key); len(why) > 0 {
			return fmt.Errorf("--node-labels: %q is no name of a label: %s: %w", key, strings.Join(why, "; "), errdefs.ErrInvalidArgument)
		}
		if why := validation.IsValidLabelValue(labels[key]); len(why) > 0 {
			return fmt.Errorf("--node-labels: %q is no value of label %s: %s: %w", labels[key], key, strings.Join(why, "; "), errdefs.ErrInvalidArgument)
		}
		if !mayLabel(key) {
			return fmt.Errorf("--node-labels: a node may not give itself %s; of labels of kubernetes.io and k8s.io those of node.kubernetes.io and kubelet.kubernetes.io are allowed, and %s; set others with kubectl label: %w", key, strings.Join(ownLabels, ", "), errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

var ownLabels = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable,
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceType, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

func mayLabel(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed || slices.Contains(ownLabels, key) {
		return true
	}
	within := func(of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
	if within("node-restriction.kubernetes.io") {
		return false
	}
	return within("node.kubernetes.io") || within("kubelet.kubernetes.io") || !within("kubernetes.io") && !within("k8s.io")
}

// Register creates the Node, or takes the one that is there, until it has
// succeeded or ctx ends. It returns what the API server has.
func Register(ctx context.Context, client *cluster.Client, r Registration, log *slog.Logger) (*corev1.Node, error) {
	if err := CheckLabels(r.Labels); err != nil {
		return nil, err
	}
	g := &registrar{Registration: r, client: client, log: log}
	var p pace.Pace
	last := ""
	for {
		node, err := g.once(ctx)
		if err == nil {
			return node, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("register node %s: %w", r.Name, err)
		}
		if text := err.Error(); text != last {
			log.Warn("cannot register the node, and try again", "node", r.Name, "error", err)
			last = text
		}
		if !pace.Sleep(ctx, p.After(err)) {
			return nil, fmt.Errorf("register node %s: %w", r.Name, err)
		}
	}
}

type registrar struct {
	Registration
	client *cluster.Client
	log    *slog.Logger

	// What is known of another machine under this name.
	renewed metav1.MicroTime
	seen    time.Time
	told    bool
}

func (g *registrar) once(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	core := g.client.REST(corev1.SchemeGroupVersion)
	has := &corev1.Node{}
	err := core.Get().Resource(cluster.Nodes).Name(g.Name).MaxRetries(0).Do(ctx).Into(has)
	if apierrors.IsNotFound(err) {
		made := &corev1.Node{}
		if err := core.Post().Resource(cluster.Nodes).Body(g.node()).MaxRetries(0).Do(ctx).Into(made); err != nil {
			return nil, fmt.Errorf("create node %s: %w", g.Name, err)
		}
		g.log.Info("node is registered", "node", g.Name)
		return made, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", g.Name, err)
	}
	if err := g.free(ctx, has); err != nil {
		return nil, err
	}
	patch, err := g.missing(has)
	if err != nil || patch == nil {
		return has, err
	}
	now := &corev1.Node{}
	if err := core.Patch(types.MergePatchType).Resource(cluster.Nodes).Name(g.Name).Body(patch).MaxRetries(0).Do(ctx).Into(now); err != nil {
		return nil, fmt.Errorf("patch node %s: %w", g.Name, err)
	}
	return now, nil
}

// node is a Node that is new.
func (g *registrar) node() *corev1.Node {
	n := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: g.Name, Labels: g.standard(), Annotations: maps.Clone(g.Annotations)},
		Spec:       corev1.NodeSpec{Taints: slices.Clone(g.Taints), ProviderID: g.ProviderID},
	}
	maps.Copy(n.Labels, g.Labels)
	if g.Status != nil {
		n.Status = g.Status()
	}
	return n
}

// standard are the labels that every node has.
func (g *registrar) standard() map[string]string {
	return map[string]string{
		corev1.LabelHostname: g.Hostname, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
}

// missing is a merge patch of what a Node lacks that was there before, or nil. The
// standard labels are made true; of the others a value that is there stays: since
// registration it is others' as much as ours. A node may not change its taints.
func (g *registrar) missing(has *corev1.Node) ([]byte, error) {
	labels, annotations := map[string]string{}, map[string]string{}
	for key, value := range g.standard() {
		if has.Labels[key] != value {
			labels[key] = value
		}
	}
	lacking(labels, has.Labels, g.Labels)
	lacking(annotations, has.Annotations, g.Annotations)
	patch := map[string]any{}
	if len(labels)+len(annotations) > 0 {
		patch["metadata"] = map[string]any{"labels": labels, "annotations": annotations}
	}
	if has.Spec.ProviderID == "" && g.ProviderID != "" {
		patch["spec"] = map[string]any{"providerID": g.ProviderID}
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(patch)
}

func lacking(out, has, wants map[string]string) {
	for key, value := range wants {
		if _, ok := has[key]; !ok {
			out[key] = value
		}
	}
}

// free says whether no other machine is this node: two under one name would each
// undo what the other does. Clocks may differ, so a lease that is not very old is
// looked at for as long as it lasts, by this machine's own clock.
func (g *registrar) free(ctx context.Context, has *corev1.Node) error {
	theirs := g.other(has.Status.NodeInfo)
	if theirs == "" {
		return nil
	}
	lease := &coordinationv1.Lease{}
	err := g.client.REST(coordinationv1.SchemeGroupVersion).Get().Namespace(corev1.NamespaceNodeLease).Resource(leases).Name(g.Name).MaxRetries(0).Do(ctx).Into(lease)
	if apierrors.IsNotFound(err) || err == nil && lease.Spec.RenewTime == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get the lease of node %s: %w", g.Name, err)
	}
	if !lease.Spec.RenewTime.Equal(&g.renewed) {
		g.renewed, g.seen = *lease.Spec.RenewTime, time.Now()
	}
	if time.Since(g.renewed.Time) > clockDifference || time.Since(g.seen) > LeaseDuration {
		g.log.Warn("the node was another machine before", "node", g.Name, "machine", theirs)
		g.warn(NameInherited, fmt.Sprintf("The node was another machine before, with the %s, and is this one now, with its labels, taints and pods. If both are to be nodes, give one of them another name with --hostname-override; else nothing is to be done", theirs))
		return nil
	}
	if !g.told {
		g.told = true
		g.warn(NameTaken, fmt.Sprintf("Another machine wants to be this node, which is the machine with the %s and was heard of lately: the other one waits. Give one of them another name with --hostname-override", theirs))
	}
	return fmt.Errorf("node %s is another machine, with the %s, which was heard of at %s; if it still runs, give this one another name with --hostname-override: %w",
		g.Name, theirs, g.renewed.Format(time.RFC3339), errdefs.ErrAlreadyExists)
}

// other says by what another machine is known, or "" if it may be this one.
func (g *registrar) other(has corev1.NodeSystemInfo) string {
	switch {
	case has.MachineID != "" && g.MachineID != "" && has.MachineID != g.MachineID:
		return "machine id " + has.MachineID
	case has.SystemUUID != "" && g.SystemUUID != "" && !strings.EqualFold(has.SystemUUID, g.SystemUUID):
		return "system UUID " + has.SystemUUID
	}
	return ""
}

func (g *registrar) warn(reason, message string) {
	if g.Warn != nil {
		g.Warn(reason, message)
	}
}
