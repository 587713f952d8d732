package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// metrics answers in the text format of Prometheus, compressed for whoever can
// read that: those of a full node are some megabytes.
func (s *Server) metrics(write func(r *http.Request, w io.Writer) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Add("Vary", "Accept-Encoding")
		if !acceptsGzip(r) {
			return write(r, w)
		}
		w.Header().Set("Content-Encoding", "gzip")
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		if err := write(r, z); err != nil {
			w.Header().Del("Content-Encoding")
			return err
		}
		return z.Close()
	}
}

// ownMetrics are those of the agent, then those of the server.
func (s *Server) ownMetrics(_ *http.Request, w io.Writer) error {
	for _, write := range s.cfg.Metrics {
		if err := write(w); err != nil {
			return err
		}
	}
	return s.registry.Write(w)
}

func acceptsGzip(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(v, ",") {
			name, weight, weighed := strings.Cut(part, ";")
			refused := weighed && strings.Trim(weight, " qQ=0.") == "" // q=0, however it is written
			if strings.EqualFold(strings.TrimSpace(name), "gzip") && !refused {
				return true
			}
		}
	}
	return false
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) error {
	v, err := s.cfg.Usage.Summary(r.Context(), flag(r.URL.Query(), "only_cpu_and_memory"))
	if err != nil {
		return err
	}
	return tell(w, v)
}
