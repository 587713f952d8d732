// Package streaming serves the streams of the container runtime interface:
// exec, attach and port-forward, and the captured exec behind ExecSync.
//
// A client gets a URL by a CRI call and opens it with SPDY or with WebSocket;
// what the two carry is the same. The URL works once and for a short time. The
// server listens on loopback only, unless it is told otherwise: whoever has
// the URL has the stream.
//
// Every stream owns a context that ends when its client has gone, when no data
// has moved for the idle timeout, or when the server ends. An exec then dies
// with everything it started; an attach lets go of the container and leaves it
// alone. Nothing outlives its stream.
//
// How a process gets into a container and how a pod's network is reached is
// not known here: see Core and Config.Dial.
package streaming
