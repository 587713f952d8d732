package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/bench/arena"
)

// Restarted is how long a daemon took from its start after a crash.
type Restarted struct {
	// Answer is until its first answer.
	Answer time.Duration
	// Observed is until it had observed all pods that it had.
	Observed time.Duration
}

// Restart kills Fairlead, as a crash would, and starts it again among its pods.
func (s *System) Restart(ctx context.Context) (Restarted, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	place, err := arena.PlaceOf(s.Pid())
	if err != nil {
		return Restarted{}, err
	}
	defer place.Close()
	if err := s.kill(); err != nil {
		return Restarted{}, err
	}
	var r Restarted
	begin := time.Now()
	if err := s.launch(place.Command(s.argv...)); err != nil {
		return r, fmt.Errorf("start %s again: %w", s.Kind, err)
	}
	// A gRPC connection that failed once would wait before it tries again.
	if err := s.await(ctx, s.accepts); err != nil {
		return r, fmt.Errorf("connect to %s again: %w", s.Kind, err)
	}
	if err := s.dial(); err != nil {
		return r, fmt.Errorf("connect to %s again: %w", s.Kind, err)
	}
	if _, err := s.Runtime.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
		return r, fmt.Errorf("ask %s for its version after its restart: %w", s.Kind, err)
	}
	r.Answer = time.Since(begin)
	if err := s.await(ctx, s.observed); err != nil {
		return r, fmt.Errorf("wait until %s has observed its pods: %w", s.Kind, err)
	}
	r.Observed = time.Since(begin)
	return r, nil
}

// kill ends the daemon and waits until it has ended.
func (s *System) kill() error {
	_ = s.conn.Close() // the daemon goes away anyway
	if err := s.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", s.Kind, err)
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s does not end on SIGKILL", s.Kind)
	}
}

// await waits until something is done. What it is not done for is the error.
func (s *System) await(ctx context.Context, done func(context.Context) error) error {
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended:\n%s", s.Said())
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *System) accepts(context.Context) error {
	c, err := net.Dial("unix", s.Socket)
	if err != nil {
		return err
	}
	return c.Close()
}

// observed asks for the pods that the daemon has not observed since it started.
func (s *System) observed(ctx context.Context) error {
	r, err := s.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return err
	}
	var left []string
	text, ok := r.GetInfo()["recovering"]
	if !ok {
		return fmt.Errorf("its status does not say what it recovers: %v", r.GetInfo())
	}
	if err := json.Unmarshal([]byte(text), &left); err != nil {
		return fmt.Errorf("read what it recovers from %q: %w", text, err)
	}
	if len(left) > 0 {
		return fmt.Errorf("%d pods are left", len(left))
	}
	return nil
}
