package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
)

var (
	attachEnded  = failpoint.Register("attach.ended")
	attachClosed = failpoint.Register("attach.closed")
)

// attachSession is the work of an attach stream.
func (s *Server) attachSession(r *cri.AttachRequest) func(context.Context, *session) outcome {
	return func(ctx context.Context, sess *session) outcome {
		return outcome{err: s.attach(ctx, pod.ContainerID(r.GetContainerId()), sess)}
	}
}

// attach copies between the client and a running container until one of them
// is done. It never ends the container.
func (s *Server) attach(ctx context.Context, id pod.ContainerID, sess *session) (err error) {
	std, err := newPipes([3]bool{false, sess.stdout != nil, sess.stderr != nil})
	if err != nil {
		return err
	}
	defer std.close()
	a, err := s.cfg.Core.Attach(ctx, id, std.theirs[1], std.theirs[2], sess.stdin != nil)
	if err != nil {
		return err
	}
	stdin, err := pollable(a.Stdin())
	if err != nil {
		return errors.Join(fmt.Errorf("take the input of container %s: %w", id.Short(), err), a.Close())
	}
	if stdin != nil {
		defer stdin.Close() // a second close of the input does nothing
	}
	s.takeAttachInput(ctx, id, sess, stdin)

	ended := make(chan struct{})
	var outputs sync.WaitGroup
	for i, dst := range map[int]io.Writer{1: sess.stdout, 2: sess.stderr} {
		if src := std.ours[i]; src != nil {
			outputs.Go(func() { s.note(ctx, drain(dst, src, ended)) })
		}
	}
	select {
	case <-a.Done():
	case <-ctx.Done():
	}
	err = errors.Join(failpoint.Hit(attachEnded), a.Close(), failpoint.Hit(attachClosed))
	std.release()
	finish(std.ours[1:], ended)
	outputs.Wait()
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// takeAttachInput copies the client's input and passes its window's size on
// until the client is done.
func (s *Server) takeAttachInput(ctx context.Context, id pod.ContainerID, sess *session, stdin *os.File) {
	switch {
	case sess.stdin != nil && stdin != nil:
		sess.background.Go(func() { feed(stdin, sess.stdin, func() { _ = stdin.Close() }) })
	case sess.stdin != nil:
		sess.background.Go(func() { _, _ = io.Copy(io.Discard, sess.stdin) })
	}
	if sess.resize != nil {
		sess.background.Go(func() {
			readSizes(sess.resize, func(w, h uint16) { s.note(ctx, s.cfg.Core.Resize(ctx, id, w, h)) })
		})
	}
}
