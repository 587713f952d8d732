// Package review reads what an API server asks a webhook, and writes the answer:
// AdmissionReview of admission.k8s.io/v1.
//
// It takes nothing on trust: anybody in a cluster can connect to a webhook. What
// cannot be read is an error with a sentence for whoever looks after the webhook,
// and reading takes time and memory in proportion to the length of a body.
// Fields that it does not know are left alone: a newer API server has them, in
// reviews and in pods.
package review
