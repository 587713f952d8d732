package inprocess

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// buffered is how many messages may wait in a stream for whoever reads them.
const buffered = 16

// stream is what both ends share. Messages in it are copies that belong to nobody
// else.
type stream struct {
	context  func() context.Context // gRPC has streams tell theirs
	cancel   context.CancelFunc
	closing  sync.Once
	requests chan proto.Message
	answers  chan proto.Message // closed at the end
	err      error              // to be read when answers are closed
	begun    chan struct{}      // closed with the first sign of the service
	begin    sync.Once
	encoded  bool // answers have fields that are encoded already
}

// end is the service's last word.
func (s *stream) end(err error) {
	s.err = err
	close(s.answers)
	s.begin.Do(func() { close(s.begun) })
	s.cancel()
}

func newStream(ctx context.Context) *stream {
	ctx, cancel := context.WithCancel(ctx)
	return &stream{context: func() context.Context { return ctx }, cancel: cancel, requests: make(chan proto.Message, buffered), answers: make(chan proto.Message, buffered), begun: make(chan struct{})}
}

func send(ctx context.Context, to chan<- proto.Message, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "send a %T: it is no message", message)
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	select {
	case to <- proto.Clone(m):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// clientEnd is a grpc.ClientStream.
type clientEnd struct{ *stream }

// Header waits for the first sign of the service. It is empty.
func (c clientEnd) Header() (metadata.MD, error) {
	select {
	case <-c.begun:
		return nil, nil
	case <-c.context().Done():
		return nil, status.FromContextError(c.context().Err()).Err()
	}
}

// Trailer is empty.
func (clientEnd) Trailer() metadata.MD { return nil }

// Context ends with the stream.
func (c clientEnd) Context() context.Context { return c.context() }

// CloseSend tells the service that no more requests come.
func (c clientEnd) CloseSend() error {
	c.closing.Do(func() { close(c.requests) })
	return nil
}

// SendMsg sends a request. After the end it is io.EOF, and RecvMsg says why.
func (c clientEnd) SendMsg(m any) error {
	if err := send(c.context(), c.requests, m); err != nil {
		return io.EOF
	}
	return nil
}

// RecvMsg waits for an answer; io.EOF is a good end.
func (c clientEnd) RecvMsg(m any) error {
	select {
	case answer, ok := <-c.answers:
		return c.took(answer, ok, m)
	default:
	}
	select {
	case answer, ok := <-c.answers:
		return c.took(answer, ok, m)
	case <-c.context().Done():
	}
	// What was sent before the end comes before it.
	select {
	case answer, ok := <-c.answers:
		return c.took(answer, ok, m)
	default:
		return status.FromContextError(c.context().Err()).Err()
	}
}

func (c clientEnd) took(answer proto.Message, ok bool, into any) error {
	switch {
	case ok && c.encoded:
		return recode(into, answer)
	case ok:
		return transfer(into, answer)
	case c.err != nil:
		return c.err
	}
	return io.EOF
}

// serverEnd is a grpc.ServerStream.
type serverEnd struct{ *stream }

// SetHeader does nothing.
func (serverEnd) SetHeader(metadata.MD) error { return nil }

// SendHeader tells who waits for it that the service is there.
func (s serverEnd) SendHeader(metadata.MD) error {
	s.begin.Do(func() { close(s.begun) })
	return nil
}

// SetTrailer does nothing.
func (serverEnd) SetTrailer(metadata.MD) {}

// Context ends with the stream.
func (s serverEnd) Context() context.Context { return serverContext(s.context()) }

// SendMsg sends an answer, when there is room for it.
func (s serverEnd) SendMsg(m any) error {
	_ = s.SendHeader(nil)
	return send(s.context(), s.answers, m)
}

// RecvMsg waits for a request; io.EOF is that no more come.
func (s serverEnd) RecvMsg(m any) error {
	select {
	case request, ok := <-s.requests:
		if !ok {
			return io.EOF
		}
		return transfer(m, request)
	case <-s.context().Done():
		return status.FromContextError(s.context().Err()).Err()
	}
}
