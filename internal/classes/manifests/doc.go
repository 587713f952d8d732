// Package manifests reads what a folder has of classes, policies, namespaces,
// nodes, pods and what makes pods, and says where each field is written. Other
// kinds are counted and left alone.
//
// What cannot be read is a Fault with file and line, and the rest goes on. It
// holds no rules about classes.
package manifests
