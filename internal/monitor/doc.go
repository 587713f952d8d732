// Package monitor is the program fairlead-monitor: one for a node, the parent
// of its containers, in two processes that replace each other (docs in
// internal/monitor/outer and internal/monitor/inner).
//
// This package reads the command line and runs what it names. The caller's
// side is internal/monitor/client.
package monitor
