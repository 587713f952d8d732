// Package v1alpha1 is Fairlead's configuration file: its keys, their defaults,
// the rules that values keep, and the flags of the same meaning.
//
// Config is the one source: Default, Load, Flags and docs/configuration.md all
// come from the struct and its tags. Files are TOML and are read strictly: what
// is not understood is an error that says where it is, never ignored.
//
// It reads configuration files and nothing else of the host. Whether a handler
// works here, or a directory exists, is for those who use them.
//
// The tags of a field: toml names the key, doc describes it, flag names the
// command line flag, and zero says what an empty value stands for.
package v1alpha1

//go:generate go run ./docgen -o ../../../docs/configuration.md
