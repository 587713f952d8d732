// Package lifecycle is the core: it runs, starts, stops and removes pods and
// containers, and recovers them after a crash.
//
// It owns the record of each pod (ports.go's Store) and the only writes to it.
// Drivers do the work behind the interfaces in ports.go; none of them is
// imported here. Every method may be repeated: the same request joins the one
// in flight, and one that was cut off by a crash is rolled back or completed.
//
// Larger than other packages: its verbs share the book and the locks, and each
// of their steps has a place at which tests end the daemon.
package lifecycle
