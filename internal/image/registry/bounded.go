package registry

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"fairlead.run/internal/errdefs"
)

// maxAnswer is how many bytes an answer may have that is no blob: manifests,
// tokens, errors. The library reads some of them into memory, to their end.
const maxAnswer = 8 << 20

// bounded cuts answers short that are longer. Blobs have a size that is known
// before they are asked for, and the library keeps to that. It notes what hosts
// answer.
type bounded struct {
	http.RoundTripper
	note func(host string, resp *http.Response, err error)
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	b.note(req.URL.Host, resp, err)
	if err != nil || forBlob(req) {
		return resp, err
	}
	resp.Body = &answer{ReadCloser: resp.Body, from: req.URL.Host, left: maxAnswer}
	return resp, nil
}

// CloseIdleConnections is what http.Client looks for.
func (b bounded) CloseIdleConnections() {
	if c, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// forBlob says whether a blob was asked for, wherever that request was sent on to.
func forBlob(req *http.Request) bool {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return strings.Contains(req.URL.Path, "/blobs/")
}

// answer is the body of an answer that is no blob.
type answer struct {
	io.ReadCloser
	from string
	left int64
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, fmt.Errorf("%s sent an answer of more than %d bytes that is no part of an image: %w", a.from, maxAnswer, errdefs.ErrUnavailable)
	}
	return n, err
}
