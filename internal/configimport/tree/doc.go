// Package tree reads TOML files of others, with the file and the line of every
// key, and remembers which keys somebody has made use of.
//
// It knows nothing of what the keys mean, and it is not how Fairlead reads its
// own configuration, which is decoded strictly into structs.
package tree
