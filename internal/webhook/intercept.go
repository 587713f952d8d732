package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/webhook/review"
)

// Bounds on what is read. An API server takes objects of up to 3 MB, and a review
// of a change has two of them. What is large waits for its turn: decoded, a body
// takes several times its length.
const (
	mostBody    = 7 << 20
	smallBody   = 256 << 10
	smallAtOnce = 64
	largeAtOnce = 2
	answerTime  = 4 * time.Second // deploy/webhook has API servers wait for five
	smallTime   = answerTime      // for a body to come
	largeTime   = 2 * time.Second
)

// rule answers a review. Its error is why it could not, and the failurePolicy of
// the configuration then decides; a refusal is an answer.
type rule func(ctx context.Context, r *review.Request) (review.Answer, error)

// interceptor is what all paths have in common.
type interceptor struct {
	log     *slog.Logger
	metrics *metrics
	small   *semaphore.Weighted
	large   *semaphore.Weighted
	buffers sync.Pool
}

func newInterceptor(m *metrics, log *slog.Logger) *interceptor {
	return &interceptor{
		log: log, metrics: m,
		small: semaphore.NewWeighted(smallAtOnce), large: semaphore.NewWeighted(largeAtOnce),
		buffers: sync.Pool{New: func() any { return new(bytes.Buffer) }},
	}
}

// serving makes a handler of a rule. Name is that of the path, for metrics.
func (i *interceptor) serving(name string, ask rule) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		i.metrics.inFlight.Add(1)
		defer i.metrics.inFlight.Add(-1)
		s := served{webhook: name, operation: "none"}
		defer func() {
			if p := recover(); p != nil {
				i.metrics.panics.Add(1)
				i.log.Error("a request made the webhook panic", "webhook", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				s.failed = true
				http.Error(w, "fairlead webhook: internal error; its log has more", http.StatusInternalServerError)
			}
			i.metrics.observe(s, time.Since(began))
		}()
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		body, err := i.answer(ctx, w, r, &s, ask)
		if err != nil {
			s.failed = true
			code := codeOf(err)
			level := slog.LevelDebug // anybody can send garbage, and who does is told
			if code >= http.StatusInternalServerError {
				level = slog.LevelWarn
			}
			i.log.Log(ctx, level, "cannot answer a request", "webhook", name, "code", code, "error", err)
			http.Error(w, "fairlead webhook: "+err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // only the one who asks is gone
	})
}

// answer reads one review and writes its answer.
//
// Larger: it has a parameter more, as w and r are the two that net/http gives.
func (i *interceptor) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, s *served, ask rule) ([]byte, error) {
	if err := acceptable(r); err != nil {
		return nil, err
	}
	buffer := i.buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= smallBody {
			buffer.Reset()
			i.buffers.Put(buffer)
		}
	}()
	// Whoever sends a small body slowly holds nobody up with it. Large ones take
	// memory, and have less time.
	gate := i.small
	if large := r.ContentLength < 0 || r.ContentLength > smallBody; large {
		gate = i.large
	} else if err := fill(buffer, r, w, smallTime); err != nil {
		return nil, err
	}
	if err := gate.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait for other requests to end: %w: %w", err, errdefs.ErrUnavailable)
	}
	defer gate.Release(1)
	if gate == i.large {
		if err := fill(buffer, r, w, largeTime); err != nil {
			return nil, err
		}
	}
	// The request points to the buffer, and is gone when its answer is there.
	request, err := review.Decode(buffer.Bytes())
	if err != nil {
		return nil, err
	}
	s.operation = string(request.Operation)
	answer, err := ask(ctx, request)
	if err != nil {
		return nil, err
	}
	s.refused = answer.Refused
	return answer.Encode(request)
}

// fill reads a body that has to be there within a time.
func fill(buffer *bytes.Buffer, r *http.Request, w http.ResponseWriter, within time.Duration) error {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // else that of the server holds
	n, err := buffer.ReadFrom(io.LimitReader(r.Body, mostBody+1))
	if err != nil {
		return fmt.Errorf("read the body: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if n > mostBody {
		return errTooLarge
	}
	return nil
}

// Kinds of failure that have a code of their own in HTTP.
var (
	errTooLarge = fmt.Errorf("the body is longer than %d bytes, which no AdmissionReview of an API server is: %w", mostBody, errdefs.ErrInvalidArgument)
	errMethod   = fmt.Errorf("only POST is answered here: %w", errdefs.ErrInvalidArgument)
	errMedia    = fmt.Errorf("the body has to be of type application/json, and not compressed: %w", errdefs.ErrInvalidArgument)
)

// acceptable refuses by the head of a request, before its body is read.
func acceptable(r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method != http.MethodPost:
		return errMethod
	case err != nil || media != "application/json" || r.Header.Get("Content-Encoding") != "":
		return errMedia
	case r.ContentLength > mostBody:
		return errTooLarge
	}
	return nil
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	case errors.Is(err, errMedia):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, errdefs.ErrInvalidArgument):
		return http.StatusBadRequest
	case errors.Is(err, errdefs.ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
