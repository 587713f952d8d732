package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// wanted are the parts of a session, under the names that the API server has for
// them on the way to a node.
type wanted struct{ stdin, stdout, stderr, tty bool }

func parseWanted(q url.Values) (wanted, error) {
	w := wanted{stdin: flag(q, "input"), stdout: flag(q, "output"), stderr: flag(q, "error"), tty: flag(q, "tty")}
	if w.tty {
		w.stderr = false // a terminal has no stream of its own for errors
	}
	if !w.stdin && !w.stdout && !w.stderr {
		return w, refuse(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr (as input=1, output=1, error=1)")
	}
	return w, nil
}

// upgrades refuses requests that cannot become a stream, before the runtime
// prepares one.
func upgrades(r *http.Request) error {
	switch {
	case r.ProtoMajor != 1:
		return refuse(http.StatusBadRequest, "Upgrade request required: a stream cannot be opened over %s", r.Proto)
	case r.Header.Get("Upgrade") == "" || !hasToken(r.Header.Values("Connection"), "upgrade"):
		return refuse(http.StatusBadRequest, "Upgrade request required")
	}
	return nil
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := upgrades(r); err != nil {
		return err
	}
	want, err := parseWanted(q)
	if err != nil {
		return err
	}
	if len(q["command"]) == 0 {
		return refuse(http.StatusBadRequest, "you must specify a command, as command=PROGRAM&command=ARGUMENT")
	}
	id, err := s.runningID(r)
	if err != nil {
		return err
	}
	resp, err := s.cfg.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: q["command"], Tty: want.tty, Stdin: want.stdin, Stdout: want.stdout, Stderr: want.stderr,
	})
	if err != nil {
		return fmt.Errorf("exec in container %q: %w", r.PathValue("container"), err)
	}
	return s.join(w, r, resp.GetUrl())
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	if err := upgrades(r); err != nil {
		return err
	}
	want, err := parseWanted(r.URL.Query())
	if err != nil {
		return err
	}
	id, err := s.runningID(r)
	if err != nil {
		return err
	}
	resp, err := s.cfg.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: id, Tty: want.tty, Stdin: want.stdin, Stdout: want.stdout, Stderr: want.stderr,
	})
	if err != nil {
		return fmt.Errorf("attach to container %q: %w", r.PathValue("container"), err)
	}
	return s.join(w, r, resp.GetUrl())
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) error {
	if err := upgrades(r); err != nil {
		return err
	}
	ports, err := parsePorts(r.URL.Query())
	if err != nil {
		return err
	}
	p, err := s.pod(r)
	if err != nil {
		return err
	}
	id, err := s.sandbox(r.Context(), p)
	if err != nil {
		return err
	}
	resp, err := s.cfg.Runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: ports})
	if err != nil {
		return fmt.Errorf("forward ports of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return s.join(w, r, resp.GetUrl())
}

// parsePorts reads the ports that a WebSocket client names in the query: one or
// several parameters of one or several numbers. Others name them later.
func parsePorts(q url.Values) ([]int32, error) {
	var out []int32
	for _, list := range append(q["port"], q["ports"]...) {
		for part := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseUint(part, 10, 16)
			if err != nil || n == 0 {
				return nil, refuse(http.StatusBadRequest, "port %q is no number from 1 to 65535", part)
			}
			out = append(out, int32(n))
		}
	}
	return out, nil
}
