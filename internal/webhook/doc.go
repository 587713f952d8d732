// Package webhook is the admission webhook of a cluster: it puts RuntimeClasses
// into pods, holds pods against RuntimeClassPolicies, and looks over classes,
// policies and the templates of workloads.
//
// It decides nothing by itself: pkg/runtimeclass and its policy have the rules.
// Here are the caches that they are asked with, the pods that are on their way
// and count already, HTTP, and what is measured. It writes nothing to the cluster
// but its own certificate.
package webhook
