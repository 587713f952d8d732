package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// healthz asks all checks, or the one that the path names. Why one fails is
// logged: whoever may ask for health need not be told more.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	checks := append([]Check{{Name: "ping", Check: func(context.Context) error { return nil }}}, s.cfg.Health...)
	if name := r.PathValue("name"); name != "" {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			return refuse(http.StatusNotFound, "there is no check of health %q", name)
		}
		checks = checks[i : i+1]
	}
	var b strings.Builder
	well, stuck := true, false
	for _, c := range checks {
		if slices.Contains(r.URL.Query()["exclude"], c.Name) {
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		err := c.Check(r.Context())
		s.slis.observe(c.Name, err)
		if err != nil {
			if stuck = stuck || c.Log; !stuck {
				s.cfg.Log.Warn("a check of health has failed", "check", c.Name, "error", err)
			}
			fmt.Fprintf(&b, "[-]%s failed: reason withheld\n", c.Name)
			well = false
			continue
		}
		fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case !well:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, b.String()+"healthz check failed\n")
	case r.URL.Query().Has("verbose"):
		fmt.Fprint(w, b.String()+"healthz check passed\n")
	default:
		fmt.Fprint(w, "ok")
	}
	return nil
}

// Healthz answers /healthz alone, for the port of the loopback that asks nobody
// who they are.
func (s *Server) Healthz() http.Handler {
	mux := http.NewServeMux()
	h := s.limited(route{name: "healthz", kind: quick, serve: s.healthz})
	mux.Handle("GET /healthz", h)
	mux.Handle("GET /healthz/{name}", h)
	return mux
}
