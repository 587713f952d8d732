package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/node/server/logquery"
)

// logRoot is a folder of logs. What pods may have put there leads nowhere: no
// link leaves the folder, and only files and folders are opened.
type logRoot struct{ root *os.Root }

// Open implements fs.FS.
func (l logRoot) Open(name string) (fs.File, error) {
	f, err := l.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (s *Server) openNodeLogs() error {
	if s.cfg.NodeLogs.Folder == "" {
		return nil
	}
	root, err := os.OpenRoot(s.cfg.NodeLogs.Folder)
	if err != nil {
		return fmt.Errorf("open the folder of the node's logs: %w", err)
	}
	s.nodeLogs = root
	return nil
}

// logs serves files and lists of folders, and answers queries.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // whatever its name looks like
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if s.cfg.NodeLogs.Query {
		q, err := logquery.Read(r.URL.Query())
		switch {
		case err == nil && q == nil:
		case err == nil && strings.Trim(r.PathValue("path"), "/") != "":
			err = fmt.Errorf("%w: it goes with the path /logs/ alone", logquery.ErrRefused)
		case err == nil && q.File == "":
			err = s.queryLogs(w, r, q)
			if err == nil {
				return nil
			}
		case err == nil:
			r.URL.Path, r.URL.RawPath = path.Join("/logs", path.Clean("/"+q.File)), ""
		}
		if err != nil {
			return refuseQuery(err)
		}
	}
	http.StripPrefix("/logs", http.FileServerFS(logRoot{s.nodeLogs})).ServeHTTP(w, r)
	return nil
}

// queryLogs answers a query for services. The program is looked for at each: a node may have
// got systemd's journal meanwhile.
func (s *Server) queryLogs(w http.ResponseWriter, r *http.Request, q *logquery.Query) error {
	node := logquery.Node{Files: logRoot{s.nodeLogs}}
	if program, err := exec.LookPath("journalctl"); err == nil {
		node.Journalctl = program
	}
	return node.Copy(r.Context(), w, q)
}

// refuseQuery gives an error of a query the code that a kubelet has for it.
func refuseQuery(err error) error {
	switch {
	case errors.Is(err, logquery.ErrMalformed):
		return refuse(http.StatusBadRequest, "%v", err)
	case errors.Is(err, logquery.ErrRefused):
		return refuse(http.StatusNotAcceptable, "%v", err)
	case errors.Is(err, fs.ErrNotExist):
		return refuse(http.StatusNotFound, "%v", err)
	}
	return err
}

func (s *Server) profile(w http.ResponseWriter, r *http.Request) error {
	switch r.PathValue("name") {
	case "cmdline":
		return refuse(http.StatusNotFound, "the command line is not told")
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
	return nil
}

// debugVerbosity is the number from which on Kubernetes' programs log what is
// for debugging.
const debugVerbosity = 4

// verbosity sets how much is logged, by the numbers of Kubernetes.
func (s *Server) verbosity(w http.ResponseWriter, r *http.Request) error {
	body := make([]byte, 16)
	n, _ := r.Body.Read(body)
	v, err := strconv.Atoi(strings.TrimSpace(string(body[:n])))
	if err != nil || v < 0 {
		return refuse(http.StatusBadRequest, "the body is no number; send 4 or more for all, less for what matters")
	}
	level := slog.LevelInfo
	if v >= debugVerbosity {
		level = slog.LevelDebug
	}
	s.cfg.Level.Set(level)
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", v)
	return nil
}
