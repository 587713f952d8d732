// Package classes answers what people ask about the RuntimeClasses of a cluster,
// or of a folder of manifests: which there are and who uses them (List), why a
// pod or a class finds its nodes or does not (ExplainPod, ExplainClass), and what
// is wrong in manifests (Lint).
//
// It looks at a Snapshot and does no I/O. The rules are those of
// pkg/runtimeclass; what is here puts them together and words the answers.
package classes
