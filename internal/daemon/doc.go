// Package daemon wires the drivers to the core and the core to its sockets:
// the process that `fairlead runtime` is, and that other commands hold inside
// themselves where none runs.
//
// Open builds everything and serves nothing yet; Run serves until its context
// ends. What a part does is in that part's package, not here.
package daemon
