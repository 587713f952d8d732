package criserver

import (
	"google.golang.org/grpc"

	"fairlead.run/internal/inprocess"
)

// encoded are the calls whose answers have parts of type wire.
var encoded = map[string]bool{
	"ListPodSandbox": true, "StreamPodSandboxes": true, "ListContainers": true, "StreamContainers": true,
	"ContainerStats": true, "ListContainerStats": true, "StreamContainerStats": true,
	"PodSandboxStats": true, "ListPodSandboxStats": true, "StreamPodSandboxStats": true,
	"ListPodSandboxMetrics": true, "StreamPodSandboxMetrics": true,
}

// Direct is a connection for callers in this process: calls do and answer the same
// as through a socket. They wait until pods are known, and their error is
// inprocess.ErrEnded after Serve was told to end.
func (s *Server) Direct() grpc.ClientConnInterface {
	c := inprocess.New(inprocess.Options{Unary: s.unary(), Streams: s.streams(), Encoded: encoded, Ended: s.ending})
	s.register(c)
	return c
}
