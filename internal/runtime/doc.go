// Package runtime keeps the runtime handlers of this node: which exist, which
// of them work here and why the others do not, and which one a name stands for.
//
// It knows no kind of handler. A Kind brings the three things that differ: how
// to try one, how to notice that trying again is due, and how to make the
// driver (package runtime/oci for runtimes with the command line of runc).
// It starts no containers and keeps no record of pods.
package runtime
