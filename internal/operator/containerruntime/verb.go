package containerruntime

import (
	"slices"
	"time"

	gardener "fairlead.run/api/gardener/v1alpha1"
)

// Verb is what has to be done about an object.
type Verb string

// The verbs of Gardener's extensions, and to do nothing.
const (
	Nothing     Verb = ""
	Reconcile   Verb = "reconcile"
	Delete      Verb = "delete"
	Migrate     Verb = "migrate"
	Restore     Verb = "restore"
	ForceDelete Verb = "force-delete"
)

// Decide says what an object asks for.
func Decide(c *gardener.ContainerRuntime) Verb {
	ours := slices.Contains(c.Finalizers, gardener.Finalizer)
	order, last := c.Annotations[gardener.AnnotationOperation], c.Status.LastOperation
	migrated := last != nil && last.Type == gardener.OperationMigrate && last.State == gardener.StateSucceeded
	switch {
	case order == gardener.OrderWaitForState:
		return Nothing
	case order == gardener.OrderMigrate && migrated && !ours:
		return Nothing // the order is about to go
	case order == gardener.OrderMigrate:
		return Migrate
	case c.DeletionTimestamp != nil && !ours:
		return Nothing // it was never begun, or is done
	case c.DeletionTimestamp != nil && c.Annotations[gardener.AnnotationForce] == "true":
		return ForceDelete
	case c.DeletionTimestamp != nil:
		return Delete
	case order == gardener.OrderRestore:
		return Restore
	case migrated && order != gardener.OrderReconcile:
		return Nothing // it is somebody else's from then on
	}
	return Reconcile
}

// operation is the type of what a verb does to an object. One that was reconciled stays
// what it was, as long as nobody asks for more.
func (v Verb) operation(c *gardener.ContainerRuntime) gardener.OperationType {
	last := c.Status.LastOperation
	switch v {
	case Delete, ForceDelete:
		return gardener.OperationDelete
	case Migrate:
		return gardener.OperationMigrate
	case Restore:
		return gardener.OperationRestore
	case Nothing, Reconcile:
	}
	switch {
	case last == nil:
		return gardener.OperationCreate
	case last.Type != gardener.OperationCreate && last.Type != gardener.OperationRestore:
		return gardener.OperationReconcile
	case last.State == gardener.StateSucceeded && asksAgain(c):
		return gardener.OperationReconcile
	}
	return last.Type
}

// asksAgain says that something is to be done since the last time it succeeded.
func asksAgain(c *gardener.ContainerRuntime) bool {
	return c.Annotations[gardener.AnnotationOperation] == gardener.OrderReconcile || c.Status.ObservedGeneration != c.Generation
}

// unanswered says that nobody has said yet that an order was heard. Also what has failed
// is begun anew then: who waits goes by what was said since.
func unanswered(c *gardener.ContainerRuntime, as gardener.OperationType, now time.Time) bool {
	last := c.Status.LastOperation
	switch {
	case last == nil || last.Type != as:
		return true
	case last.State == gardener.StateProcessing:
		return false
	}
	at := ordered(c)
	return asksAgain(c) || last.LastUpdateTime.Time.Before(at) && at.Sub(now) < skew
}
