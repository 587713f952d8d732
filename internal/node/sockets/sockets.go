// Package sockets serves gRPC at the unix sockets that other programs of the node look for,
// for as long as the agent lives.
package sockets

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
)

// retry is when a socket that could not be served is tried again.
const retry = 5 * time.Second

// Socket is one that is served. Path and Server are required.
type Socket struct {
	// Path is where it is. Its folder is made, for root and its group alone.
	Path string
	// Clear takes away what an agent before this one has left in the folder; without it, that is
	// the socket alone.
	Clear func(folder string) error
	// Server makes what serves it, each time anew.
	Server func() *grpc.Server
	// Failed is told why it is not served, once as long as that is the same. It must not wait.
	Failed func(error)
}

// Serve serves it until ctx ends. What fails is tried again: a disk without room for a
// socket must not end the agent, which is who makes room there.
func (s Socket) Serve(ctx context.Context) {
	for told := ""; ; {
		err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != told && s.Failed != nil {
			s.Failed(err)
			told = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// once ends with ctx, or by an error.
func (s Socket) once(ctx context.Context) error {
	folder := filepath.Dir(s.Path)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fmt.Errorf("make the folder of a socket: %w", err)
	}
	clearing := s.Clear
	if clearing == nil {
		clearing = func(string) error { return s.remove() }
	}
	if err := clearing(folder); err != nil {
		return fmt.Errorf("clear the folder of a socket: %w", err)
	}
	l, err := net.Listen("unix", s.Path)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	server := s.Server()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case <-ctx.Done():
		server.Stop()
		<-ended
		return nil
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", s.Path, err)
	}
}

// remove takes away the socket of an agent that was killed, and nothing else.
func (s Socket) remove() error {
	switch info, err := os.Lstat(s.Path); {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is no socket; move it away", s.Path)
	}
	return os.Remove(s.Path)
}
