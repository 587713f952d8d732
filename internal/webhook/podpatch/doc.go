// Package podpatch writes what admission has done to a pod as a JSON patch
// (RFC 6902), as an API server wants to be told.
//
// It knows the few fields that admission touches, and no others: what a newer API
// server has in a pod, and this program has never heard of, stays as it is.
package podpatch
