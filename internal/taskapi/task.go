package taskapi

import (
	"context"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
)

// Any is a message with the name of its type.
type Any struct {
	Type  string `json:"type"`
	Value []byte `json:"value"`
}

// Encode is the message google.protobuf.Any; nothing for the zero value.
func (a Any) Encode() []byte {
	var m message
	m.text(1, a.Type)
	m.bytes(2, a.Value)
	return m
}

// The types of what is passed on as JSON.
const (
	TypeProcess   = "types.containerd.io/opencontainers/runtime-spec/1/Process"
	TypeResources = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
)

// Stdio are paths of FIFOs; an empty one is the null device.
type Stdio struct {
	Terminal     bool
	In, Out, Err string
}

func (s Stdio) put(m *message, terminal protowire.Number) {
	m.flag(terminal, s.Terminal)
	m.text(terminal+1, s.In)
	m.text(terminal+2, s.Out)
	m.text(terminal+3, s.Err)
}

// Process names a container's first process, or with Exec another in it.
type Process struct{ ID, Exec string }

func (p Process) encode() message {
	var m message
	m.text(1, p.ID)
	m.text(2, p.Exec)
	return m
}

// Create makes a container from its bundle, but does not start its program.
func (e Endpoint) Create(ctx context.Context, id, bundle string, s Stdio, options Any) error {
	var m message
	m.text(1, id)
	m.text(2, bundle)
	s.put(&m, 4)
	m.bytes(10, options.Encode())
	_, err := e.call(ctx, "Create", m)
	return err
}

// Exec prepares one more process, which spec describes.
func (e Endpoint) Exec(ctx context.Context, p Process, s Stdio, spec Any) error {
	m := p.encode()
	s.put(&m, 3)
	m.bytes(7, spec.Encode())
	_, err := e.call(ctx, "Exec", m)
	return err
}

// Start starts a process and returns the pid that it has on the host, as far as
// it is a process there: for a container in a sandbox it is the sandbox's, or 0.
func (e Endpoint) Start(ctx context.Context, p Process) (pid int, err error) {
	f, err := e.call(ctx, "Start", p.encode())
	return int(f.number(1)), err
}

// Wait waits until a process has ended and returns its exit code, 128 more than
// its signal if one has ended it.
func (e Endpoint) Wait(ctx context.Context, p Process) (code int, err error) {
	f, err := e.call(ctx, "Wait", p.encode())
	return int(f.number(1) & 0xff), err
}

// Delete makes the shim forget a process that has ended, once what it has written
// has been passed on.
func (e Endpoint) Delete(ctx context.Context, p Process) error {
	_, err := e.call(ctx, "Delete", p.encode())
	return err
}

// Kill sends a signal to a process, or with all to all of its container.
func (e Endpoint) Kill(ctx context.Context, p Process, sig syscall.Signal, all bool) error {
	m := p.encode()
	m.number(3, uint64(sig))
	m.flag(4, all)
	_, err := e.call(ctx, "Kill", m)
	return err
}

// ResizePty sets the size of a terminal, in characters.
func (e Endpoint) ResizePty(ctx context.Context, p Process, width, height uint16) error {
	m := p.encode()
	m.number(3, uint64(width))
	m.number(4, uint64(height))
	_, err := e.call(ctx, "ResizePty", m)
	return err
}

// CloseIO ends the input of a process, once everybody who writes to it has closed
// it.
func (e Endpoint) CloseIO(ctx context.Context, p Process) error {
	m := p.encode()
	m.flag(3, true)
	_, err := e.call(ctx, "CloseIO", m)
	return err
}

// Update gives a container other limits, as JSON of the runtime specification.
func (e Endpoint) Update(ctx context.Context, id string, resources []byte) error {
	var m message
	m.text(1, id)
	m.bytes(2, Any{TypeResources, resources}.Encode())
	_, err := e.call(ctx, "Update", m)
	return err
}

// Shutdown lets the shim end if it has no containers.
func (e Endpoint) Shutdown(ctx context.Context, id string) error {
	var m message
	m.text(1, id)
	m.flag(2, true)
	_, err := e.call(ctx, "Shutdown", m)
	return err
}
