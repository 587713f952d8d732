// Package remote is the client's side of exec and port-forward: it connects to the
// address that a CRI runtime gave for a stream. For exec it carries standard input and
// output, follows the terminal's size, and returns the exit code; for port-forward it
// carries a connection.
//
// It speaks SPDY, with version 4 of the remote command protocol for exec, which every
// CRI runtime does. It does not know what runs at the other end.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// The names of the protocol.
const (
	protocolHeader = "X-Stream-Protocol-Version"
	protocolV4     = "v4.channel.k8s.io"
	streamType     = "streamType"
	exitCodeCause  = "ExitCode"
	nonZeroReason  = "NonZeroExitCode"
)

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint16 }

// Streams are the local ends. Nil ones are not carried; they have to agree
// with what the stream's address was asked for.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY says that the command has a terminal: its errors are in Stdout.
	TTY bool
	// Sizes are the terminal's sizes, the current one first. Nil if there is no
	// terminal at our end.
	Sizes <-chan Size
}

// ExitError says that the command ended with an exit code other than 0.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("the command ended with exit code %d", e.Code) }

// Run connects to the address and returns when the command has ended and all
// of its output was written, or the context ends.
func Run(ctx context.Context, address string, s Streams) error {
	conn, err := dial(ctx, address, protocolV4)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	err = carry(conn, s)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// carry opens a stream for each end, in the order that servers expect.
func carry(conn httpstream.Connection, s Streams) error {
	failure, err := open(conn, "error")
	if err != nil {
		return err
	}
	_ = failure.Close() // only read from
	outcome := make(chan error, 1)
	go func() { outcome <- readOutcome(failure) }()

	var outputs sync.WaitGroup
	if s.Stdin != nil {
		in, err := open(conn, "stdin")
		if err != nil {
			return err
		}
		go func() { // ends with the connection, or with the local input
			_, _ = io.Copy(in, s.Stdin)
			_ = in.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, in) }() // lets the server close its half
	}
	for _, out := range []struct {
		name string
		to   io.Writer
	}{{"stdout", s.Stdout}, {"stderr", s.Stderr}} {
		if out.to == nil {
			continue
		}
		from, err := open(conn, out.name)
		if err != nil {
			return err
		}
		_ = from.Close()
		outputs.Go(func() { _, _ = io.Copy(out.to, from) })
	}
	if s.TTY { // servers wait for this stream, whether sizes come or not
		resize, err := open(conn, "resize")
		if err != nil {
			return err
		}
		go sendSizes(resize, s.Sizes, conn.CloseChan())
	}
	outputs.Wait()
	return <-outcome
}

func open(conn httpstream.Connection, name string) (httpstream.Stream, error) {
	stream, err := conn.CreateStream(http.Header{streamType: []string{name}})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return stream, nil
}

func sendSizes(to io.WriteCloser, sizes <-chan Size, closed <-chan bool) {
	defer func() { _ = to.Close() }()
	encoder := json.NewEncoder(to)
	for {
		select {
		case <-closed:
			return
		case size := <-sizes:
			if encoder.Encode(size) != nil {
				return
			}
		}
	}
}

// readOutcome reads the status that the server sends at the end.
func readOutcome(r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return fmt.Errorf("the stream broke: %w", err)
	}
	if len(data) == 0 {
		return errors.New("the stream ended and nobody said how the command did")
	}
	var status metav1.Status
	if err := json.Unmarshal(data, &status); err != nil {
		return fmt.Errorf("%s", data)
	}
	if status.Status == metav1.StatusSuccess {
		return nil
	}
	if code, ok := exitCode(&status); ok {
		return &ExitError{code}
	}
	return errors.New(status.Message)
}

func exitCode(s *metav1.Status) (int, bool) {
	if s.Reason != nonZeroReason || s.Details == nil {
		return 0, false
	}
	for _, cause := range s.Details.Causes {
		if string(cause.Type) == exitCodeCause {
			code, err := strconv.Atoi(cause.Message)
			return code, err == nil
		}
	}
	return 0, false
}
