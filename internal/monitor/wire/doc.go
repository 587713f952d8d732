// Package wire carries frames of JSON and descriptors over unix sockets.
//
// It knows nothing about what the frames say: that is api/monitor/v1 between
// the monitor and its callers, and internal/monitor/handover between the
// monitor's two processes. It does without package net, which would be a third
// of the memory of the monitor's outer process.
package wire
