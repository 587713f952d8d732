package audit

import (
	"slices"

	"fairlead.run/internal/pod"
)

// Problem is in which way something does not agree with the records.
type Problem string

// The problems.
const (
	// Leftover is there, and no pod needs it.
	Leftover Problem = "leftover"
	// Missing is not there, and a pod needs it.
	Missing Problem = "missing"
	// Faulty is there and is not as it has to be.
	Faulty Problem = "faulty"
)

// Code names what a finding is: the kind of the thing and the problem. Codes
// are stable: scripts may look for them.
type Code string

// CodeOf is the code of a problem with a kind of thing.
func CodeOf(k pod.Kind, p Problem) Code { return Code(string(k) + "-" + string(p)) }

// Rule is what is known of one code.
type Rule struct {
	Kind    pod.Kind
	Problem Problem
	// Means says what was found, of which the name stands before it.
	Means string
	// Repair says what a repair does; "" if there is none.
	Repair string
	// Advice says what else helps, where there is no repair or it cannot be done.
	Advice string
	// can says whether the repair is possible for this pod and container, of
	// which the latter may be nil; nil means always.
	can func(r *pod.Record, c *pod.Container) bool
}

// Code is the rule's code.
func (r *Rule) Code() Code { return CodeOf(r.Kind, r.Problem) }

const (
	removePod       = "remove the pod; its owner makes another"
	removeContainer = "remove the container; its owner makes another"
	pullAgain       = "remove the image and pull it again"
)

// rules are all codes. Leftovers are removed in this order: what may still run
// comes first, and what lies under it last.
var rules = []Rule{
	{Kind: pod.KindRecord, Problem: Faulty, Means: "the record of the pod cannot be read", Advice: "remove the pod, which frees what it holds"},
	{Kind: pod.KindRecord, Problem: Leftover, Means: "a record that the daemon does not have in memory", Advice: "start the daemon again"},
	{Kind: pod.KindRecord, Problem: Missing, Means: "the record of the pod is in memory only", Repair: "write it again"},

	{Kind: pod.KindProcess, Problem: Leftover, Means: "the monitor follows a process of no pod", Repair: "kill it and forget it"},
	{Kind: pod.KindState, Problem: Leftover, Means: "an OCI runtime keeps a container of no pod", Repair: "kill what is in it and let the runtime delete it"},
	{Kind: pod.KindTrial, Problem: Leftover, Means: "the trial of a handler was cut off", Repair: "remove its container and its folder"},
	{Kind: pod.KindCheckpoint, Problem: Leftover, Means: "the folder of a checkpoint of a container that does not exist", Repair: "end what writes into it and delete it"},
	{Kind: pod.KindCgroup, Problem: Leftover, Means: "a cgroup of no pod", Repair: "kill what is in it and remove it"},
	{Kind: pod.KindAttachment, Problem: Leftover, Means: "a network attachment of no running pod", Repair: "detach it and free its addresses"},
	{Kind: pod.KindResult, Problem: Leftover, Means: "a CNI plugin's result for no running pod", Repair: "run DEL with it"},
	{Kind: pod.KindLink, Problem: Leftover, Means: "an interface of no running pod on the bridge", Repair: "delete it"},
	{Kind: pod.KindAddress, Problem: Leftover, Means: "an address that is taken and that no pod has", Repair: "free it"},
	{Kind: pod.KindPort, Problem: Leftover, Means: "a port of the node that is held for no pod", Repair: "free it"},
	{Kind: pod.KindElement, Problem: Leftover, Means: "a translated host port of no running pod", Repair: "make the nftables table anew"},
	{Kind: pod.KindNamespace, Problem: Leftover, Means: "a pinned namespace of no running pod", Repair: "unpin it"},
	{Kind: pod.KindMount, Problem: Leftover, Means: "a mount of no running pod", Repair: "unmount it"},
	{Kind: pod.KindFIFO, Problem: Leftover, Means: "a FIFO of no pod", Repair: "delete it"},
	{Kind: pod.KindBundle, Problem: Leftover, Means: "the bundle of a container of no pod", Repair: "delete it"},
	{Kind: pod.KindFolder, Problem: Leftover, Means: "the folder of a pod that does not exist", Repair: "delete it"},
	{Kind: pod.KindWritable, Problem: Leftover, Means: "what a container of no pod wrote", Repair: "delete it"},
	{Kind: pod.KindUse, Problem: Leftover, Means: "an image is kept for a container of no pod", Repair: "release it"},
	{Kind: pod.KindLease, Problem: Leftover, Means: "a lease of a pull that is over keeps parts of images", Repair: "delete it"},
	{Kind: pod.KindSnapshot, Problem: Leftover, Means: "an unpacked layer that no image needs", Repair: "delete it"},
	{Kind: pod.KindBlob, Problem: Leftover, Means: "a blob that no image needs", Repair: "delete it"},

	{Kind: pod.KindFolder, Problem: Missing, Means: "the folder of the pod is gone", Repair: "make it and its files again", Advice: removePod, can: hasProcess},
	{Kind: pod.KindNamespace, Problem: Missing, Means: "a namespace of the pod is not pinned any more", Repair: "pin it again from a process of the pod", Advice: removePod, can: hasProcess},
	{Kind: pod.KindMount, Problem: Missing, Means: "a mount of the pod is gone", Repair: "mount it again", Advice: removeContainer, can: mayMount},
	{Kind: pod.KindCgroup, Problem: Missing, Means: "a cgroup of the pod is gone", Repair: "make it again with its limits", Advice: removeContainer, can: ofPod},
	{Kind: pod.KindAttachment, Problem: Missing, Means: "the network ledger has lost the pod", Repair: "write the entry again", Advice: removePod},
	{Kind: pod.KindTable, Problem: Missing, Means: "the nftables table or a part of it is gone", Repair: "make it anew"},
	{Kind: pod.KindLink, Problem: Missing, Means: "the pod's interface on the built-in bridge is gone", Repair: "connect the pod again, with its addresses", Advice: removePod},
	{Kind: pod.KindElement, Problem: Missing, Means: "a host port of the pod is not translated any more", Repair: "make the nftables table anew"},
	{Kind: pod.KindProcess, Problem: Missing, Means: "the monitor does not know the container, so nobody will record its end", Advice: removeContainer},
	{Kind: pod.KindState, Problem: Missing, Means: "the OCI runtime does not know the container, so exec and update fail", Advice: removeContainer},
	{Kind: pod.KindUse, Problem: Missing, Means: "the image of the container may be removed under it", Repair: "keep it"},
	{Kind: pod.KindBundle, Problem: Missing, Means: "the folder of the container is gone", Advice: removeContainer},
	{Kind: pod.KindFIFO, Problem: Missing, Means: "a FIFO of the container is gone; output is copied until both processes of the monitor are replaced", Advice: "remove the container when that suits: a new FIFO of this name would be another one than the container writes to"},
	{Kind: pod.KindWritable, Problem: Missing, Means: "the writable layer of the container is gone", Advice: removeContainer},

	{Kind: pod.KindFolder, Problem: Faulty, Means: "a file of the pod is gone", Repair: "write it again, for containers that are made from now on"},
	{Kind: pod.KindLink, Problem: Faulty, Means: "the pod's interface is not on the built-in bridge", Repair: "put it back on the bridge"},
	{Kind: pod.KindBundle, Problem: Faulty, Means: "the container has no config.json any more", Advice: removeContainer},
	{Kind: pod.KindCheckpoint, Problem: Faulty, Means: "a checkpoint was cut off, and its container may be frozen", Advice: "start the daemon, which lets the container go on"},
	{Kind: pod.KindAddress, Problem: Faulty, Means: "the pod's interface does not have the pod's address", Advice: "a process with NET_ADMIN in the pod may want it so; if not, remove the pod"},
	{Kind: pod.KindAttachment, Problem: Faulty, Means: "the network attachment of the pod is not in order", Advice: removePod},
	{Kind: pod.KindSnapshot, Problem: Faulty, Means: "a layer that a container or an image needs is damaged", Advice: pullAgain},
	{Kind: pod.KindImage, Problem: Faulty, Means: "the image is incomplete", Advice: pullAgain},
	{Kind: pod.KindBlob, Problem: Faulty, Means: "the blob is not what its digest says", Repair: "delete it, so that the next pull fetches it", Advice: pullAgain},
}

// Rules are all codes with what is known of them.
func Rules() []Rule { return slices.Clone(rules) }

// ruleOf is what is known of a problem, and its place in the order of repairs.
// Without a rule it is none: a table of all pods is no leftover of one.
func ruleOf(k pod.Kind, p Problem) (rule Rule, rank int, ok bool) {
	for i, r := range rules {
		if r.Kind == k && r.Problem == p {
			return r, i, true
		}
	}
	return Rule{}, 0, false
}

// hasProcess says whether a process of the pod holds its namespaces.
func hasProcess(r *pod.Record, _ *pod.Container) bool {
	if r.Sandbox.Pause != nil {
		return true
	}
	return slices.ContainsFunc(r.Containers, func(c *pod.Container) bool {
		return c.State == pod.Running && c.Process != nil
	})
}

// mayMount says whether a mount can be put back: that of a container that runs
// is in use where the host does not see it.
func mayMount(_ *pod.Record, c *pod.Container) bool { return c == nil || c.State == pod.Created }

func ofPod(_ *pod.Record, c *pod.Container) bool { return c == nil }
