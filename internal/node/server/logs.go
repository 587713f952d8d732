package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/logs"
)

// stampForm is how times are shown: all nine digits, so that columns align.
const stampForm = "2006-01-02T15:04:05.000000000Z07:00"

// logOptions are what a request asks of a log.
type logOptions struct {
	logs.Options
	previous   bool
	timestamps bool
	limit      int64 // bytes; negative is none
}

func parseLogOptions(q url.Values, now time.Time) (logOptions, error) {
	o := logOptions{Options: logs.Options{Tail: -1, Rotated: true, Follow: flag(q, "follow")}, previous: flag(q, "previous"), timestamps: flag(q, "timestamps"), limit: -1}
	tail, err := count(q, tailName(q), 0)
	if err != nil {
		return o, err
	}
	if tail != nil {
		o.Tail = int(min(*tail, 1<<31-1))
	}
	limit, err := count(q, "limitBytes", 1)
	if err != nil {
		return o, err
	}
	if limit != nil {
		o.limit = *limit
	}
	if o.Since, err = since(q, now); err != nil {
		return o, err
	}
	switch s := q.Get("stream"); s {
	case "", "All":
	case "Stdout", "Stderr":
		o.Stream = strings.ToLower(s)
	default:
		return o, refuse(http.StatusUnprocessableEntity, "stream is %q; it must be All, Stdout or Stderr", s)
	}
	return o, nil
}

// tailAll is a tail that is the whole log.
const tailAll = "all"

// tailName is the parameter that says how many lines are asked for: tail is the older name of
// tailLines and goes before it, as with a kubelet. Empty is for all of them.
func tailName(q url.Values) string {
	switch q.Get("tail") {
	case "":
		return "tailLines"
	case tailAll:
		return ""
	}
	return "tail"
}

// flag reads a boolean as the API server writes and reads it: a name without
// a value is true.
func flag(q url.Values, name string) bool {
	v := q.Get(name)
	return q.Has(name) && !strings.EqualFold(v, "false") && v != "0"
}

// count reads a number; nil if there is none.
func count(q url.Values, name string, least int64) (*int64, error) {
	v := q.Get(name)
	if v == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%s is %q, which is no whole number", name, v)
	}
	if n < least {
		return nil, refuse(http.StatusUnprocessableEntity, "%s is %d; it must be %d or more", name, n, least)
	}
	return &n, nil
}

func since(q url.Values, now time.Time) (time.Time, error) {
	seconds, err := count(q, "sinceSeconds", 1)
	if err != nil {
		return time.Time{}, err
	}
	stamp := q.Get("sinceTime")
	switch {
	case seconds != nil && stamp != "":
		return time.Time{}, refuse(http.StatusUnprocessableEntity, "at most one of sinceTime or sinceSeconds may be specified")
	case seconds != nil:
		return now.Add(-time.Duration(min(*seconds, 1<<32)) * time.Second), nil
	case stamp == "":
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return t, refuse(http.StatusBadRequest, "sinceTime is %q, which is no time in the form of RFC 3339", stamp)
	}
	return t, nil
}

// containerLogs tells what a container has written, and goes on until it ends if
// that is asked for.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) error {
	o, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	p, err := s.pod(r)
	if err != nil {
		return err
	}
	name := r.PathValue("container")
	id, err := logged(p, name, o.previous)
	if err != nil {
		return err
	}
	resp, err := s.cfg.Runtime.ContainerStatus(r.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if status.Code(err) == codes.NotFound {
		return refuse(http.StatusNotFound, "the log of container %q in pod %q is gone: the runtime has removed container %s", name, p.Name, id)
	}
	if err != nil {
		return fmt.Errorf("find the log of container %q in pod %q: %w", name, p.Name, err)
	}
	path := resp.GetStatus().GetLogPath()
	if path == "" {
		return refuse(http.StatusBadRequest, "container %q in pod %q keeps no log", name, p.Name)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if o.Follow && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		o.Follow = false
	}
	if o.Follow {
		o.Ended = s.ended(ctx, id)
	}
	return writeLog(ctx, w, path, o)
}

// writeLog copies a log to an answer.
func writeLog(ctx context.Context, w http.ResponseWriter, path string, o logOptions) error {
	out := &logWriter{to: bufio.NewWriterSize(w, 32<<10), flush: http.NewResponseController(w).Flush, options: o, cut: map[string]bool{}}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	o.Idle = out.pass
	err := logs.Read(ctx, path, o.Options, out.line)
	switch {
	case errors.Is(err, errEnough):
	case err != nil && ctx.Err() != nil:
		return nil // the one who asked is gone, or the server ends
	case err != nil:
		return err
	}
	return out.to.Flush()
}

var errEnough = errors.New("as many bytes as were asked for")

// logWriter writes lines as they were, and as much of them as was asked for.
type logWriter struct {
	to      *bufio.Writer
	flush   func() error
	options logOptions
	written int64
	// cut are the streams whose last line goes on: it has its time already.
	cut map[string]bool
}

func (l *logWriter) line(line logs.Line) error {
	if l.options.timestamps && !l.cut[line.Stream] && !line.Time.IsZero() {
		if err := l.write([]byte(line.Time.Format(stampForm) + " ")); err != nil {
			return err
		}
	}
	l.cut[line.Stream] = line.Partial
	if err := l.write(line.Text); err != nil || line.Partial {
		return err
	}
	return l.write([]byte{'\n'})
}

func (l *logWriter) write(b []byte) error {
	enough := false
	if left := l.options.limit - l.written; l.options.limit >= 0 && int64(len(b)) >= left {
		b, enough = b[:left], true
	}
	n, err := l.to.Write(b)
	l.written += int64(n)
	if err == nil && enough {
		err = errEnough
	}
	return err
}

// pass hands on what is there when nothing more is.
func (l *logWriter) pass() error {
	if err := l.to.Flush(); err != nil {
		return err
	}
	return l.flush()
}

// askInterval is how often a runtime is asked where nobody tells of ends.
const askInterval = time.Second

// ended is closed when a container has ended, or may not be known to have.
func (s *Server) ended(ctx context.Context, id string) <-chan struct{} {
	if e, ok := s.cfg.Node.(Ender); ok {
		return e.Ended(ctx, id)
	}
	done := make(chan struct{})
	go func() { // ends with ctx, which is that of the request
		defer close(done)
		tick := time.NewTicker(askInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			resp, err := s.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			gone := status.Code(err) == codes.NotFound
			if gone || err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
				return
			}
		}
	}()
	return done
}
