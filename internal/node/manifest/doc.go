// Package manifest reads the files given to fairlead run, and those of the folders
// that an agent follows: documents of YAML or JSON that hold RuntimeClasses, Pods,
// Deployments, Jobs and their like, ConfigMaps and Secrets.
//
// What it returns is complete and sound by the rules of Kubernetes, and holds
// no field that would be ignored: a field that is set must be in the
// table of honoured fields of package honoured, or the manifest is refused with the
// field's path.
//
// Manifests may come from strangers, so size, depth and aliases are bounded.
// The package does not look at the machine: whether a host path exists or a
// handler works is for others to say.
package manifest
