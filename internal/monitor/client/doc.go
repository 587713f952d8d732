// Package client is the caller's side of fairlead-monitor: it finds or starts
// the monitor of a state directory and asks it to start containers, run execs,
// attach, and tell how they ended.
//
// Each request has a connection of its own, so the monitor may be restarted
// under its caller: a request that meets the gap waits for up to two seconds,
// and is sent again if that can do no harm. The package keeps no record of
// processes; the monitor is the only writer of pids and exits.
package client
