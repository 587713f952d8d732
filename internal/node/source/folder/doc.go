// Package folder is a folder of manifests as a source of pods, as the static pods of
// a kubelet are: the files that end in .yaml, .yml or .json, without hidden ones and
// without folders below. Links are followed, so that a mounted ConfigMap works.
//
// A fault of one file leaves the others alone. A file that is broken, is being
// written, or cannot be read stands for what it held when it was good last; only a
// file that is gone takes its pods with it. A folder that is gone does not: that is
// a problem, and not an empty folder.
package folder
