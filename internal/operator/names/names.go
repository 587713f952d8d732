// Package names is what the operator writes on objects of others: labels of nodes,
// and of what it makes. They are an API; docs/operator.md lists them.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	gardener "fairlead.run/api/gardener/v1alpha1"
)

// Labels of nodes. A type is put after those that end in a slash or a dot.
const (
	// Requested is Gardener's: the node is to have the runtime.
	Requested = gardener.LabelRuntimePrefix
	// RequestedSeed says the same by the name that the proposal had for it.
	RequestedSeed = "container.runtime."
	// Ready says that the runtime was verified on the node, with all that was asked for.
	Ready = "ready.fairlead.run/"
	// Handler is before the name of a handler that the node serves; its value is the
	// type. Classes select it: of a type, nodes may have other handlers.
	Handler = "handler.fairlead.run/"
	// Phase is the record of what is on a node, and for whom: a Phase, a dot and a
	// pool. It is there from before the first file is written until the last is gone.
	Phase = "install.fairlead.run/"
)

// OfOperator says that the operator writes a label of nodes by how far they are, and takes
// it off again.
func OfOperator(label string) bool {
	return slices.ContainsFunc([]string{Requested, RequestedSeed, Ready, Handler, Phase}, func(prefix string) bool { return strings.HasPrefix(label, prefix) })
}

// PhaseOf is what happens to a runtime on a node.
type PhaseOf string

// The phases; "" is that there is nothing of the runtime.
const (
	None    PhaseOf = ""
	Install PhaseOf = "install" // it is put there, or is there
	Leaving PhaseOf = "leaving" // the installer's pod ends, which would put it there again
	Cleanup PhaseOf = "cleanup" // it is taken away
)

// Value is the label of a phase.
func (p PhaseOf) Value(pool string) string { return string(p) + "." + pool }

// ReadPhase reads a label of a node.
func ReadPhase(value string) (phase PhaseOf, pool string) {
	word, pool, ok := strings.Cut(value, ".")
	if p := PhaseOf(word); ok && (p == Install || p == Leaving || p == Cleanup) {
		return p, pool
	}
	return None, ""
}

// Labels of what the operator makes.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	Manager   = "fairlead-operator"
	Type      = "operator.fairlead.run/type"
	Pool      = "operator.fairlead.run/pool"
	Work      = "operator.fairlead.run/work" // Install or Cleanup, of pods

	// AnnotationRevision is the hash of what a DaemonSet's pods were made from, and
	// AnnotationHandlers are those that they see to, with commas. Both are of pods.
	AnnotationRevision = "operator.fairlead.run/revision"
	AnnotationHandlers = "operator.fairlead.run/handlers"
	// PoolFinalizer keeps a WorkerPool until its runtimes are gone.
	PoolFinalizer = "fairlead.run/workerpool"
)

// Isolation is the label of classes that policies read.
const Isolation = "fairlead.run/isolation"

// Object is the name of something for a pool and a type, short enough for a label.
func Object(parts ...string) string {
	const most = 52 // a DaemonSet's pods add a hash
	name := strings.Join(parts, "-")
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:most-9], "-") + "-" + hex.EncodeToString(sum[:])[:8]
}
