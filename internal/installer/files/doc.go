// Package files reads and replaces files of a node, below the folder where its root
// directory is seen: whole or not at all, with the mode and owner of what was there,
// and never over what somebody has written meanwhile.
//
// Links are followed as the node means them. What is written, and how it is undone, is
// for others to say.
package files
