package statuses

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/cluster/merge"
)

// owned are the conditions that only the node writes, and takes away.
var owned = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting,
}

// shared are conditions that others write, too. Ours counts if it holds.
var shared = []corev1.PodConditionType{corev1.DisruptionTarget}

// lists are those of a PodStatus. All others are replaced by API servers.
var lists = merge.Lists{
	Keyed: map[string]string{"conditions": "type"},
	Owned: map[string]bool{"podIPs": true, "hostIPs": true},
}

// merged is the status that a pod should have: what is wanted of ours, and of all
// else what the API server has.
func merged(has, wants *corev1.PodStatus) *corev1.PodStatus {
	out := *wants
	out.Conditions = conditions(has.Conditions, wants.Conditions)
	out.NominatedNodeName = has.NominatedNodeName
	out.ResourceClaimStatuses = has.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = has.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = has.NodeAllocatableResourceClaimStatuses
	if out.QOSClass == "" {
		out.QOSClass = has.QOSClass
	}
	if out.Resize == "" {
		out.Resize = has.Resize
	}
	if has.StartTime != nil { // a pod starts once
		out.StartTime = has.StartTime
	}
	if ended(has.Phase) && !ended(wants.Phase) { // others count on an end to be one
		out.Phase, out.Reason, out.Message = has.Phase, has.Reason, has.Message
	}
	return &out
}

func ended(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// conditions are in the order of has, so that equal ones are equal lists.
func conditions(has, wants []corev1.PodCondition) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range has {
		at := find(wants, c.Type)
		switch {
		case at < 0 && slices.Contains(owned, c.Type):
		case at < 0 || !ours(wants[at]):
			out = append(out, c)
		default:
			out = append(out, since(c, wants[at]))
		}
	}
	for _, c := range wants {
		if find(has, c.Type) < 0 {
			out = append(out, c)
		}
	}
	return out
}

func ours(c corev1.PodCondition) bool {
	return slices.Contains(owned, c.Type) || slices.Contains(shared, c.Type) && c.Status == corev1.ConditionTrue
}

// since is a condition with the time at which it came to hold, if that is known.
func since(has, wants corev1.PodCondition) corev1.PodCondition {
	if has.Status == wants.Status && !has.LastTransitionTime.IsZero() {
		wants.LastTransitionTime = has.LastTransitionTime
	}
	return wants
}

func find(in []corev1.PodCondition, of corev1.PodConditionType) int {
	return slices.IndexFunc(in, func(c corev1.PodCondition) bool { return c.Type == of })
}

// known is a version of a pod that a change is made for.
type known struct {
	uid     types.UID
	version string
}

// patch turns what the API server has into what is wanted; nil if it is that. It
// fails there for another pod of the same name, and for another version: a write whose
// answer was lost may have changed what this one leaves out.
func patch(of known, has, wants *corev1.PodStatus) ([]byte, error) {
	was, err := merge.Object(has)
	if err != nil {
		return nil, err
	}
	is, err := merge.Object(merged(has, wants))
	if err != nil {
		return nil, err
	}
	changes := merge.Diff(was, is, lists)
	if len(changes) == 0 {
		return nil, nil
	}
	meta := map[string]any{"uid": of.uid}
	if of.version != "" {
		meta["resourceVersion"] = of.version
	}
	return json.Marshal(map[string]any{"metadata": meta, "status": changes})
}
