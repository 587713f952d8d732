package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// client sends requests to containers. A proxy of the node is not theirs, a
// certificate is seldom made out to the address of a pod, and each request shows
// whether a new connection is taken.
var client = &http.Client{
	Transport: &http.Transport{
		Proxy:              nil,
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2:  true,
		DisableKeepAlives:  true,
		DisableCompression: true,
	},
	CheckRedirect: sameHost,
}

// Release is the one of Kubernetes whose kubelet the requests are like.
const Release = "1.36"

// What requests call themselves, as a kubelet's do: servers and filters of logs know
// probes by that.
const (
	probing = "kube-probe/" + Release
	hooking = "kube-lifecycle/" + Release
)

// maxRedirects is how often one request is sent on.
const maxRedirects = 10

// sameHost follows redirects within a host. What would lead elsewhere is the
// answer itself.
func sameHost(r *http.Request, before []*http.Request) error {
	switch {
	case r.URL.Hostname() != before[0].URL.Hostname():
		return http.ErrUseLastResponse
	case len(before) >= maxRedirects:
		return fmt.Errorf("it was redirected %d times", maxRedirects)
	}
	return nil
}

// shortPause is when a hook is tried again that the node had no descriptors for.
const shortPause = time.Second

// Hook sends the request of a hook. Any answer will do. A server that does not speak HTTPS is
// asked once more by HTTP and without credentials, as by a kubelet: hooks were sent by HTTP
// whatever their scheme in old releases of Kubernetes, and some are left that rely on it.
//
// What the node lacks to ask, as descriptors, is waited for until ctx ends: nobody was asked yet.
func (t *Target) Hook(ctx context.Context, a *corev1.HTTPGetAction) error {
	_, err := t.get(ctx, a, hooking)
	for err != nil && short(err) {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(shortPause):
		}
		_, err = t.get(ctx, a, hooking)
	}
	switch {
	case errors.As(err, new(cutOff)): // it may have ended its server, as it was to
		return nil
	case !errors.Is(err, http.ErrSchemeMismatch):
		return err
	}
	plain := a.DeepCopy()
	plain.Scheme = corev1.URISchemeHTTP
	plain.HTTPHeaders = slices.DeleteFunc(plain.HTTPHeaders, func(h corev1.HTTPHeader) bool {
		return http.CanonicalHeaderKey(h.Name) == "Authorization"
	})
	resp, failed := t.get(ctx, plain, hooking)
	if failed != nil && !errors.As(failed, new(cutOff)) {
		return err
	}
	if t.Plain != nil {
		t.Plain(resp.Request.URL.Host)
	}
	return nil
}

// get sends the request of an httpGet action and reads the beginning of the
// answer. The error is an unasked one if there was nobody to send it to.
func (t *Target) get(ctx context.Context, a *corev1.HTTPGetAction, agent string) (*http.Response, error) {
	r, err := t.request(ctx, a)
	if err != nil {
		return nil, unasked{err}
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header.Set("User-Agent", agent)
	}
	resp, err := client.Do(r)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the address, which whoever asks knows
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	begins, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return resp, cutOff{fmt.Errorf("read the answer: %w", err)}
	}
	resp.Body = io.NopCloser(bytes.NewReader(begins))
	return resp, nil
}

// cutOff says that an answer has begun and not ended.
type cutOff struct{ error }

// Unwrap is what has happened.
func (c cutOff) Unwrap() error { return c.error }

// unasked says that a request could not be made.
type unasked struct{ error }

func (t *Target) request(ctx context.Context, a *corev1.HTTPGetAction) (*http.Request, error) {
	address, err := t.address(a.Host, a.Port)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(a.Path)
	if err != nil {
		at = &url.URL{Path: a.Path}
	}
	at.Scheme, at.Host = "http", address
	if a.Scheme != "" {
		at.Scheme = strings.ToLower(string(a.Scheme))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range a.HTTPHeaders {
		r.Header.Add(h.Name, h.Value)
	}
	r.Host = r.Header.Get("Host") // empty is the address
	switch accept, ok := r.Header["Accept"]; {
	case !ok:
		r.Header.Set("Accept", "*/*")
	case accept[0] == "": // set to nothing on purpose
		r.Header.Del("Accept")
	}
	return r, nil
}

// tryHTTP wants an answer from 200 to 399.
func (t *Target) tryHTTP(ctx context.Context, a *corev1.HTTPGetAction) Result {
	resp, err := t.get(ctx, a, probing)
	switch {
	case errors.As(err, new(unasked)):
		return Result{Unknown, err.Error()}
	case err != nil:
		return failed(err)
	case resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest:
		// The body may hold what only the container's own clients should see.
		return Result{Failure, fmt.Sprintf("the answer has the status %d", resp.StatusCode)}
	case resp.StatusCode >= http.StatusMultipleChoices:
		return Result{Success, elsewhere(resp)}
	}
	return Result{Outcome: Success}
}

// elsewhere warns of a redirect that was not followed. Its second sentence is the
// kubelet's, which upstream's specs look for.
func elsewhere(resp *http.Response) string {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxShown)) // it was read before, and cannot fail
	return fmt.Sprintf("the answer is a redirect (%d) to another host, which is not followed. Probe terminated redirects, Response body: %s",
		resp.StatusCode, strings.ToValidUTF8(strings.TrimSpace(string(body)), "?"))
}

// maxShown bounds what is told of the answer to a probe, in bytes.
const maxShown = 500
