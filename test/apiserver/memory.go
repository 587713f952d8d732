package apiserver

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// transport carries requests to a server in the same process.
type transport struct{ to *Server }

// RoundTrip returns as soon as there are headers, as over a network.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	a := &answerBody{header: http.Header{}, begun: make(chan struct{}), hangUp: cancel}
	a.more = sync.NewCond(&a.mu)
	context.AfterFunc(ctx, func() { a.end(context.Cause(ctx)) })
	request := r.Clone(ctx)
	if request.Body == nil {
		request.Body = http.NoBody
	}
	go func() {
		defer request.Body.Close()
		t.to.serve(a, request)
		a.WriteHeader(http.StatusOK)
		a.end(io.EOF)
	}()
	select {
	case <-a.begun:
		return &http.Response{
			StatusCode: a.code, Status: http.StatusText(a.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: a.header.Clone(), Body: a, Request: r, ContentLength: -1,
		}, nil
	case <-ctx.Done():
		cancel()
		return nil, r.Context().Err()
	}
}

// answerBody is written by the server and read by the client.
type answerBody struct {
	header http.Header
	code   int
	begun  chan struct{}
	hangUp func()

	mu     sync.Mutex
	more   *sync.Cond
	buffer bytes.Buffer
	ended  error
}

func (a *answerBody) Header() http.Header { return a.header }
func (a *answerBody) Flush()              { a.WriteHeader(http.StatusOK) }

func (a *answerBody) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
		close(a.begun)
	}
}

func (a *answerBody) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return 0, a.ended
	}
	defer a.more.Broadcast()
	return a.buffer.Write(p)
}

func (a *answerBody) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == nil {
		a.ended = err
	}
	a.more.Broadcast()
}

func (a *answerBody) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.buffer.Len() == 0 && a.ended == nil {
		a.more.Wait()
	}
	if a.buffer.Len() > 0 {
		return a.buffer.Read(p)
	}
	return 0, a.ended
}

func (a *answerBody) Close() error {
	a.hangUp()
	return nil
}
