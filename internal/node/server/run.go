package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runTime is how long a command may take whose output is an answer.
const runTime = 2 * time.Minute

// run runs a command, given as one line, and answers with what it has printed.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	command := strings.Fields(r.FormValue("cmd"))
	if len(command) == 0 {
		return refuse(http.StatusBadRequest, "you must specify a command, as cmd=PROGRAM ARGUMENT")
	}
	id, err := s.runningID(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), runTime)
	defer cancel()
	resp, err := s.cfg.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: int64(runTime.Seconds())})
	if err != nil {
		return fmt.Errorf("run a command in container %q: %w", r.PathValue("container"), err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if resp.GetExitCode() != 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(resp.GetStdout())
	_, _ = w.Write(resp.GetStderr())
	if code := resp.GetExitCode(); code != 0 {
		fmt.Fprintf(w, "command terminated with exit code %d\n", code)
	}
	return nil
}

// maxCheckpoint is how long one may take when the caller does not say.
const maxCheckpoint = 10 * time.Minute

// checkpoint writes a checkpoint of a container and answers with its path.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) error {
	timeout, err := count(r.URL.Query(), "timeout", 0)
	if err != nil {
		return err
	}
	id, err := s.runningID(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.cfg.CheckpointDir, 0o700); err != nil {
		return fmt.Errorf("make the folder of checkpoints: %w", err)
	}
	name := fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", r.PathValue("pod"), r.PathValue("namespace"), r.PathValue("container"), time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	req := &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: filepath.Join(s.cfg.CheckpointDir, name)}
	limit := maxCheckpoint
	if timeout != nil && *timeout > 0 {
		req.Timeout = *timeout
		limit = time.Duration(min(*timeout, int64(time.Hour/time.Second))) * time.Second
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit+dialTime)
	defer cancel()
	if _, err := s.cfg.Runtime.CheckpointContainer(ctx, req); err != nil {
		return fmt.Errorf("checkpoint container %q: %w", r.PathValue("container"), err)
	}
	return tell(w, map[string][]string{"items": {req.GetLocation()}})
}
