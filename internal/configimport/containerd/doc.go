// Package containerd reads what containerd is configured by: config.toml of the
// versions 2, 3 and 4 with the files that it imports, merged as containerd 2
// merges them, and what its handlers, registries and networks become here.
//
// It only reads files. It asks no containerd, and does not look whether
// programs exist.
package containerd
