// Package validate says what is wrong with worker pools, container runtimes,
// payloads and Gardener's shoots: each fault with the path of its field and what to
// change.
//
// It is pure. The webhook asks it before an object is stored, and the operator
// again before it acts, as a cluster may be without the webhook.
package validate
