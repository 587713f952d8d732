// Package check holds objects against the rules of Kubernetes, as far as fields
// are concerned that Fairlead honours.
//
// What it finds are messages that start with the path of a field. Where that field
// is written is for package manifest to say; whether it is honoured is in the
// table there.
package check
