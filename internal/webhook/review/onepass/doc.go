// Package onepass reads JSON into the types of Kubernetes in one pass, if it is as
// API servers write it, and otherwise says that it has not.
//
// It has no errors of its own and decides nothing: what it reads, sigs.k8s.io/json
// reads as well, strictly and into the same value, which a fuzz test holds it to. What
// it does not read, be it wrong, a key that is there twice, a quantity that is costly to
// read, or only unusual, is for that library, which says what is wrong.
package onepass
