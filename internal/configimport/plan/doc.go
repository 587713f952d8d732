// Package plan is a configuration of Fairlead's while it is put together from
// another runtime's: what will be written, and what was found to have no
// counterpart.
//
// Nothing gets into it that Fairlead would refuse: each value is tried on the
// decoder that the daemon has. It writes no file.
package plan
