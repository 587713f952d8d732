package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
)

// Socket is where a machine with that state folder answers its commands, by HTTP. Only
// root can use it.
func Socket(state string) string { return filepath.Join(state, "agent.sock") }

// kinds gives errors their status.
var kinds = []struct {
	kind   error
	status int
}{
	{errdefs.ErrNotFound, http.StatusNotFound},
	{errdefs.ErrAlreadyExists, http.StatusConflict},
	{errdefs.ErrPrecondition, http.StatusPreconditionFailed},
	{errdefs.ErrInvalidArgument, http.StatusBadRequest},
	{errdefs.ErrUnavailable, http.StatusServiceUnavailable},
}

// serve answers commands until ctx ends.
func (m *Machine) serve(ctx context.Context) error {
	path := Socket(m.cfg.State)
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return err
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return fmt.Errorf("another fairlead up serves %s, and keeps the pods of this machine: %w", path, errdefs.ErrAlreadyExists)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	server := &http.Server{
		Handler: m.handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }, // what follows events ends with it
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err = server.Close()
	<-ended
	return err
}

func (m *Machine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
		for _, p := range m.agent.Pods() {
			p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			list.Items = append(list.Items, *p)
		}
		answer(w, list, nil)
	})
	mux.HandleFunc("GET /objects/{kind}", func(w http.ResponseWriter, r *http.Request) {
		list, err := m.list(r.PathValue("kind"))
		answer(w, list, err)
	})
	mux.HandleFunc("GET /objects/{kind}/{name}/readiness", func(w http.ResponseWriter, r *http.Request) {
		out, err := m.Readiness(r.PathValue("kind"), manifest.Key{Namespace: r.URL.Query().Get("namespace"), Name: r.PathValue("name")})
		answer(w, out, err)
	})
	mux.HandleFunc("GET /why", func(w http.ResponseWriter, _ *http.Request) {
		out := map[types.UID]string{}
		m.beside.whys.Range(func(uid, why any) bool {
			out[uid.(types.UID)] = why.(string)
			return true
		})
		answer(w, out, nil)
	})
	mux.HandleFunc("GET /present", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.present(), nil) })
	mux.HandleFunc("GET /usage", func(w http.ResponseWriter, r *http.Request) {
		summary, err := m.keeper.Usage(r.Context())
		answer(w, summary, err)
	})
	mux.HandleFunc("GET /events", m.tellEvents)
	mux.HandleFunc("GET /problems", func(w http.ResponseWriter, _ *http.Request) {
		out := []Problem{}
		for _, p := range m.Problems() {
			out = append(out, Problem{p.Origin, p.Err.Error()})
		}
		answer(w, out, nil)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { _ = errors.Join(m.agent.Metrics(w), m.keeper.Metrics(w)) })
	mux.HandleFunc("POST /objects", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, manifest.MaxSize))
		if err != nil {
			answer(w, nil, fmt.Errorf("read the manifest: %w: %w", err, errdefs.ErrInvalidArgument))
			return
		}
		out, err := m.Apply(r.Context(), text)
		answer(w, out, err)
	})
	mux.HandleFunc("POST /objects/{kind}/{name}/restart", func(w http.ResponseWriter, r *http.Request) {
		out, err := m.Restart(r.Context(), r.PathValue("kind"), manifest.Key{Namespace: r.URL.Query().Get("namespace"), Name: r.PathValue("name")})
		answer(w, out, err)
	})
	mux.HandleFunc("DELETE /objects/{kind}/{name}", func(w http.ResponseWriter, r *http.Request) {
		out, err := m.Delete(r.Context(), r.PathValue("kind"), manifest.Key{Namespace: r.URL.Query().Get("namespace"), Name: r.PathValue("name")})
		answer(w, out, err)
	})
	return mux
}

// Problem is one with a manifest, as it is told.
type Problem struct {
	Origin string `json:"origin"`
	Error  string `json:"error"`
}

// answer writes an answer, or the error in its place.
func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		code := http.StatusInternalServerError
		for _, k := range kinds {
			if errors.Is(err, k.kind) {
				code = k.status
			}
		}
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // whoever asked may have gone
}

// tellEvents writes the events, one to a line, and with follow those that come.
func (m *Machine) tellEvents(w http.ResponseWriter, r *http.Request) {
	out, number := json.NewEncoder(w), 0
	for {
		events, last, more := m.events.since(number)
		number = last
		for _, e := range events {
			if out.Encode(e) != nil {
				return
			}
		}
		if r.URL.Query().Get("follow") == "" || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
