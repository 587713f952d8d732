// Package run drives the fairlead command as a person would: manifests in,
// output, exit codes and what is left on the machine out. It builds the
// programs, makes its own image, and needs root, runc and crun.
package run
