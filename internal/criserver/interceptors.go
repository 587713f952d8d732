package criserver

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/telemetry"
)

// observe writes one line per call, at debug level: the caller gets the error,
// and decides whether it matters.
func (s *Server) observe(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !s.log.Enabled(ctx, slog.LevelDebug) {
		return next(ctx, req)
	}
	start := s.now()
	resp, err := next(ctx, req)
	attrs := append(ids(req, resp),
		slog.String("method", path.Base(info.FullMethod)),
		slog.Duration("took", s.now().Sub(start)),
		slog.String("code", status.Code(err).String()))
	if err != nil {
		attrs = append(attrs, slog.String("error", status.Convert(err).Message()))
	}
	s.log.LogAttrs(ctx, slog.LevelDebug, "CRI call", attrs...)
	return resp, err
}

// trace hands on the span that the caller names.
func (s *Server) trace(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if named := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(named) == 1 {
		ctx = telemetry.WithParent(ctx, named[0])
	}
	return next(ctx, req)
}

const maxLoggedID = 128

// ids picks what tells calls apart, from the request and else from the answer.
func ids(req, resp any) []slog.Attr {
	var attrs []slog.Attr
	for _, m := range []any{req, resp} {
		if x, ok := m.(interface{ GetPodSandboxId() string }); ok && x.GetPodSandboxId() != "" {
			attrs = append(attrs, slog.String("pod", shorten(x.GetPodSandboxId(), maxLoggedID)))
		}
		if x, ok := m.(interface{ GetContainerId() string }); ok && x.GetContainerId() != "" {
			attrs = append(attrs, slog.String("container", shorten(x.GetContainerId(), maxLoggedID)))
		}
	}
	return attrs
}

func (s *Server) encodeErrors(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	if err != nil {
		return nil, explain(info.FullMethod, statusOf(err))
	}
	return resp, nil
}

func (s *Server) encodeStreamErrors(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return explain(info.FullMethod, statusOf(next(srv, ss)))
}

// explain gives the calls that have no file here an answer that a person
// understands. They all come from the generated code with the same words.
func explain(method string, err error) error {
	name := path.Base(method)
	if status.Code(err) != codes.Unimplemented || status.Convert(err).Message() != fmt.Sprintf("method %s not implemented", name) {
		return err
	}
	return status.Errorf(codes.Unimplemented, "%s: this version of Fairlead does not serve it; everything else of the CRI is unaffected", name)
}

func (s *Server) recoverPanics(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer s.caught(ctx, info.FullMethod, &err)
	return next(ctx, req)
}

func (s *Server) recoverStreamPanics(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer s.caught(ss.Context(), info.FullMethod, &err)
	return next(srv, ss)
}

// caught turns a panic into an error: one bad request must not end the daemon.
// It is to be deferred. The stack goes to the log only.
func (s *Server) caught(ctx context.Context, method string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	s.log.ErrorContext(ctx, "CRI call panicked", "method", path.Base(method), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	*err = fmt.Errorf("%s panicked, which is a fault of Fairlead; its log has the stack: %w", path.Base(method), errdefs.ErrInternal)
}

// patient are the calls whose errors tell how far a slow operation has come.
var patient = map[string]bool{
	"RunPodSandbox": true, "StopPodSandbox": true, "RemovePodSandbox": true,
	"CreateContainer": true, "StartContainer": true, "StopContainer": true, "RemoveContainer": true,
	"UpdateContainerResources": true, "UpdatePodSandboxResources": true, "ReopenContainerLog": true, "PullImage": true, "RemoveImage": true,
	"CheckpointContainer": true, "CheckpointPod": true, "RestorePod": true,
}

// maxMargin is what inTime takes at most.
const maxMargin = time.Second

// inTime ends a patient call a little before its caller's deadline. At the
// deadline itself, the caller's own library gives up with no word about the
// operation, and an answer comes too late.
func (s *Server) inTime(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	deadline, ok := ctx.Deadline()
	if !ok || !patient[path.Base(info.FullMethod)] {
		return next(ctx, req)
	}
	margin := min(deadline.Sub(s.now())/10, maxMargin)
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-margin))
	defer cancel()
	return next(ctx, req)
}

// needNoPods are the calls that are answered at any time.
var needNoPods = map[string]bool{
	"Version": true, "Status": true, "RuntimeConfig": true, "UpdateRuntimeConfig": true,
	"ListImages": true, "StreamImages": true, "ImageStatus": true, "PullImage": true,
}

// awaitReady holds calls back until pods can be asked about, so that nobody
// takes a daemon that is starting for one without pods.
func (s *Server) awaitReady(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.whenReady(ctx, path.Base(info.FullMethod)); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (s *Server) awaitReadyStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := s.whenReady(ss.Context(), path.Base(info.FullMethod)); err != nil {
		return err
	}
	return next(srv, ss)
}

func (s *Server) whenReady(ctx context.Context, method string) error {
	if needNoPods[method] {
		return nil
	}
	select {
	case <-s.cfg.Ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: the daemon is starting and has not read its pods yet: %w", method, errdefs.ErrUnavailable)
	}
}
