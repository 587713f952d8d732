// Package source is what all sources of pods other than an API server have in
// common: the set of objects that a source hands on, how several sets become one,
// and how the pods of a set get what an API server would give them.
//
// A source has a Run(ctx) error that blocks until ctx ends, and calls a function
// with its whole set each time that it has changed. It is level-triggered: a set
// says what is to be, and nothing about what was. A source that can no longer be
// read is not an empty one: what was good last stays, with a problem.
package source

import "fairlead.run/internal/node/manifest"

// Problem is something that is wrong with a source, or a part of one, and leaves
// the rest as it is.
type Problem = manifest.Problem

// Decoder reads what a source holds: of one machine, or static pods of a node.
func Decoder(static bool) func(manifest.Source) (*manifest.File, error) {
	if static {
		return manifest.DecodeStatic
	}
	return manifest.DecodeFile
}

// Set is the whole of what a source holds at one time. The objects are shared with
// other sets, and must not be changed.
type Set struct {
	// Objects is nil as long as nothing was read. What runs because of the source
	// must then be left as it is: it may be in there.
	Objects  *manifest.Objects
	Problems []Problem
	// Unread are the kinds of those sources, of several that were merged, that were
	// not read yet. What runs because of them must be left as it is. See
	// SourceAnnotation.
	Unread []string
}

// Kinds of sources, as a kubelet calls them.
const (
	File    = "file" // a folder of manifests
	Address = "http"
	Stdin   = "stdin"
)
