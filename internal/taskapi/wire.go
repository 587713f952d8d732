package taskapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.run/internal/errdefs"
)

// Namespace is the namespace of containerd's that shims are told.
const Namespace = "fairlead"

// A frame of ttrpc: length of the body, number of the stream, type, flags.
const (
	headerSize   = 10
	maxBody      = 4 << 20
	typeRequest  = 1
	typeResponse = 2
	onlyStream   = 1 // a connection carries one call
)

// dialLimit bounds the connecting. A shim takes a connection at once, unless its
// queue is full because it hangs.
const dialLimit = 5 * time.Second

// Endpoint is where a shim takes calls. The zero value is nowhere.
type Endpoint struct {
	// Address is unix:// and a path, or the name of an abstract socket.
	Address string `json:"address"`
	// Version is that of the task service, 2 or 3.
	Version int `json:"version"`
}

// service is the full name of the task service.
func (e Endpoint) service() string { return fmt.Sprintf("containerd.task.v%d.Task", e.Version) }

// socket is the address as package net writes it.
func (e Endpoint) socket() (string, error) {
	scheme, path, ok := strings.Cut(e.Address, "://")
	switch {
	case !ok && e.Address != "":
		return "@" + e.Address, nil
	case scheme == "unix" && path != "":
		return path, nil
	}
	return "", fmt.Errorf("the shim's address %q is no unix socket: %w", e.Address, errdefs.ErrUnimplemented)
}

// SocketPath is the file that the shim listens at, or "" if there is none.
func (e Endpoint) SocketPath() string {
	path, ok := strings.CutPrefix(e.Address, "unix://")
	if !ok {
		return ""
	}
	return path
}

// Gone tells whether a call failed because there is no shim any more.
func Gone(err error) bool { return errors.Is(err, errdefs.ErrUnavailable) }

// call makes one call on a connection of its own, so that a call that lasts, such
// as Wait, is in nobody's way. It ends when ctx does. A shim that is not there, or
// dies meanwhile, is errdefs.ErrUnavailable, one that is late errdefs.ErrDeadline;
// what it refuses has the kind that it says.
func (e Endpoint) call(ctx context.Context, method string, request []byte) (fields, error) {
	answer, err := e.exchange(ctx, method, request)
	if err == nil {
		return answer, nil
	}
	if ctx.Err() != nil && !errors.As(err, new(*Refusal)) {
		err = fmt.Errorf("it gives no answer: %w: %w", errdefs.ErrDeadline, context.Cause(ctx))
	}
	return nil, fmt.Errorf("%s of the shim at %s: %w", method, e.Address, err)
}

func (e Endpoint) exchange(ctx context.Context, method string, request []byte) (fields, error) {
	socket, err := e.socket()
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialLimit}
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(frame(typeRequest, onlyStream, e.envelope(ctx, method, request))); err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	kind, stream, body, err := readFrame(conn)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err):
		return nil, fmt.Errorf("it hung up: %w", errdefs.ErrUnavailable)
	case err != nil:
		return nil, err
	case kind != typeResponse || stream != onlyStream:
		return nil, garbage("a frame of type %d on stream %d", kind, stream)
	}
	return result(body)
}

// isReset tells whether the other side died with something unread.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !errors.Is(err, os.ErrDeadlineExceeded)
}

// garbage is an answer that is none.
func garbage(format string, args ...any) error {
	return fmt.Errorf("it answers garbage (%s): %w", fmt.Sprintf(format, args...), errdefs.ErrInternal)
}

// envelope is the request as ttrpc wraps it.
func (e Endpoint) envelope(ctx context.Context, method string, payload []byte) []byte {
	var m message
	m.text(1, e.service())
	m.text(2, method)
	m.bytes(3, payload)
	if deadline, ok := ctx.Deadline(); ok {
		m.number(4, uint64(max(1, time.Until(deadline))))
	}
	var header message
	header.text(1, "containerd-namespace-ttrpc")
	header.text(2, Namespace)
	m.bytes(5, header)
	return m
}

// frame is a header and a body.
func frame(kind byte, stream uint32, body []byte) []byte {
	out := make([]byte, headerSize, headerSize+len(body))
	binary.BigEndian.PutUint32(out, uint32(len(body)))
	binary.BigEndian.PutUint32(out[4:], stream)
	out[8] = kind
	return append(out, body...)
}

func readFrame(r io.Reader) (kind byte, stream uint32, body []byte, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, 0, nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > maxBody {
		return 0, 0, nil, garbage("a frame of %d bytes", size)
	}
	body = make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, 0, nil, err
	}
	return header[8], binary.BigEndian.Uint32(header[4:]), body, nil
}

// Refusal is what a shim says instead of doing something.
type Refusal struct {
	Code    uint64 // of gRPC
	Message string
}

// Error is the shim's message.
func (r *Refusal) Error() string { return r.Message }

// Unwrap is the kind that the code stands for.
func (r *Refusal) Unwrap() error {
	switch r.Code {
	case 3:
		return errdefs.ErrInvalidArgument
	case 4:
		return errdefs.ErrDeadline
	case 5:
		return errdefs.ErrNotFound
	case 6:
		return errdefs.ErrAlreadyExists
	case 8:
		return errdefs.ErrExhausted
	case 9:
		return errdefs.ErrPrecondition
	case 12:
		return errdefs.ErrUnimplemented
	}
	return errdefs.ErrInternal
}

// result takes a response apart: a status that is not OK, or a payload.
func result(body []byte) (fields, error) {
	response, err := parse(body)
	if err != nil {
		return nil, err
	}
	status, err := parse(response.bytes(1))
	if err != nil {
		return nil, err
	}
	if code := status.number(1); code != 0 {
		return nil, &Refusal{Code: code, Message: strings.ToValidUTF8(string(status.bytes(2)), "?")}
	}
	return parse(response.bytes(2))
}

// message is one of protobuf's that is being written. What is empty is left out.
type message []byte

func (m *message) bytes(number protowire.Number, v []byte) {
	if len(v) > 0 {
		*m = protowire.AppendBytes(protowire.AppendTag(*m, number, protowire.BytesType), v)
	}
}

func (m *message) text(number protowire.Number, v string) { m.bytes(number, []byte(v)) }

func (m *message) number(number protowire.Number, v uint64) {
	if v != 0 {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, number, protowire.VarintType), v)
	}
}

func (m *message) flag(number protowire.Number, v bool) { m.number(number, protowire.EncodeBool(v)) }

// fields are those of a message that was read; the last of each number counts.
type fields map[protowire.Number]field

type field struct {
	number uint64
	bytes  []byte
}

func (f fields) number(n protowire.Number) uint64 { return f[n].number }

func (f fields) bytes(n protowire.Number) []byte { return f[n].bytes }

// parse reads a message. Fields of fixed size, of which the task service has none
// that matter, are passed over.
func parse(data []byte) (fields, error) {
	out := fields{}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, garbage("%d bytes that are no message", len(data))
		}
		data = data[n:]
		var f field
		switch kind {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return nil, garbage("field %d is cut off", number)
		}
		data, out[number] = data[n:], f
	}
	return out, nil
}
