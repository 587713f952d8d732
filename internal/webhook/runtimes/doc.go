// Package runtimes answers for what brings container runtimes to nodes: WorkerPools,
// RuntimePayloads, ContainerRuntimes, the worker groups of Gardener's shoots, and the
// deletion of RuntimeClasses that pods use.
//
// The rules are internal/operator/validate's. Here is what they are asked with. Such
// objects are written a few times a day, so nothing of them is kept in memory: the API
// server is asked.
package runtimes
