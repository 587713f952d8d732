// Package plugin is what the operator and the webhook have to know of one type of
// container runtime: its names, what a providerConfig may say, and which machines
// suit it. A type is a folder in internal/operator/plugins; nothing else here or
// in the operator knows one by name.
//
// It is pure. What is installed is the payload's, which a RuntimePayload names, and
// how it is installed is internal/installer's.
package plugin
