// Package containerruntime acts on ContainerRuntimes: one controller for each type,
// all of them the same code. It speaks Gardener's protocol of operations to whoever
// waits (a gardenlet, or the controller of WorkerPools), and has what is wanted
// applied: settings, DaemonSets and RuntimeClasses, or in a Gardener landscape what
// an OperatingSystemConfig is to have.
//
// What a type is, its plugin says. What becomes of nodes is internal/operator/nodes'.
package containerruntime
