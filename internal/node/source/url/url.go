// Package url is an address that serves manifests, as a source of pods.
//
// It is asked again and again, with the tag of what it served before, so that an
// answer without changes costs little. An address that cannot be reached, or serves
// what is not right, stands for what it served when it was good last.
package url

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"strings"
	"time"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/keep"
)

// DefaultInterval is between two requests if the Config does not say.
const DefaultInterval = 20 * time.Second

// timeout is that of a request, answer included.
const timeout = 10 * time.Second

// maxRedirects bounds the redirects of one request.
const maxRedirects = 5

// Config says what to ask.
type Config struct {
	URL      string
	Header   http.Header // for each request
	Interval time.Duration
	// Keep is where the last good version is kept for the next agent. No other source
	// may use it.
	Keep   keep.Folder
	Static bool // it serves static pods of a node
}

// Source is one address.
type Source struct {
	Config
	name   string // for people, who need no passwords
	set    func(source.Set)
	client *http.Client

	copies *keep.Copies
	good   *manifest.File
	sum    [sha256.Size]byte // of good
	tag    string            // of what was served last, good or not
	bad    error             // with what was served last
	told   string            // the problem of the last set
}

// New makes a source that calls set, from the goroutine of Run, after the first
// request and whenever anything has changed.
func New(c Config, set func(source.Set)) (*Source, error) {
	u, err := neturl.Parse(c.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("an address of manifests must begin with http:// or https:// and name a host")
	}
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	shown := *u
	shown.RawQuery, shown.Fragment = "", ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	name := shown.Redacted()
	return &Source{Config: c, name: name, copies: keep.Of(name, c.Keep), set: set, client: &http.Client{Timeout: timeout, CheckRedirect: redirect, Transport: transport}}, nil
}

// redirect follows redirects on the same host only: the headers may hold secrets.
func redirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	if first := via[0].URL; r.URL.Host != first.Host || (first.Scheme == "https" && r.URL.Scheme != "https") {
		return fmt.Errorf("it redirects to %s://%s; use that address if you trust it", r.URL.Scheme, r.URL.Host)
	}
	return nil
}

// Run asks until ctx ends. It returns nil then, and never before.
func (s *Source) Run(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	s.restore()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		changed, err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		changed = s.copies.Again() || changed
		s.tell(first || changed, err)
		timer.Reset(s.Interval)
	}
}

// restore takes up what an earlier agent has kept.
func (s *Source) restore() {
	for _, c := range s.copies.Load() {
		f, err := source.Decoder(s.Static)(manifest.Source{Name: s.name, Data: c.Data})
		if err == nil && c.Name == s.URL {
			s.good, s.sum, s.tag = f, sha256.Sum256(c.Data), c.Tag
		} else {
			s.copies.Remove(c.Name)
		}
	}
}

// tell hands on a set if it is another one.
func (s *Source) tell(changed bool, problem error) {
	out := source.Set{}
	if problem != nil {
		what := "nothing of it runs until it is mended"
		if s.good != nil {
			what = "what it served before stays in force until it is mended"
		}
		problem = fmt.Errorf("%w\n%s: %s", problem, s.name, what)
		out.Problems = []source.Problem{{Origin: s.name, Err: problem}}
	}
	out.Problems = append(out.Problems, s.copies.Problems()...)
	if problem == nil { // it was read
		s.copies.Told()
	}
	text := fmt.Sprint(out.Problems)
	if !changed && text == s.told {
		return
	}
	s.told = text
	if s.good != nil {
		objects, more := manifest.Merge([]*manifest.File{s.good})
		out.Objects, out.Problems = objects, append(out.Problems, more...)
	}
	s.set(out)
}

// ask makes one request, and says whether what is good has changed. The error is
// about the address, or about what it serves.
func (s *Source) ask(ctx context.Context) (changed bool, err error) {
	data, tag, err := s.fetch(ctx)
	if err != nil {
		return false, fmt.Errorf("manifests of %s: %w", s.name, err)
	}
	if data == nil { // the same as before
		return false, s.bad
	}
	s.tag = tag
	sum := sha256.Sum256(data)
	if s.good != nil && sum == s.sum {
		s.bad = nil
		return false, nil
	}
	f, err := source.Decoder(s.Static)(manifest.Source{Name: s.name, Data: data})
	if s.bad = err; err != nil {
		return false, err
	}
	s.good, s.sum = f, sum
	s.copies.Save(keep.Copy{Name: s.URL, Data: data, Tag: tag})
	return true, nil
}

// fetch gets what is served. It is nil if that is what was served before.
func (s *Source) fetch(ctx context.Context) (data []byte, tag string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, "", err
	}
	for name, values := range s.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	if s.tag != "" {
		request.Header.Set("If-None-Match", s.tag)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		var with *neturl.Error // which repeats the address, with its query
		if errors.As(err, &with) {
			err = with.Err
		}
		return nil, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode == http.StatusNotModified && s.tag != "":
		return nil, "", nil
	case answer.StatusCode != http.StatusOK:
		return nil, "", fmt.Errorf("it answers %s", strings.TrimSpace(answer.Status))
	}
	data, err = io.ReadAll(io.LimitReader(answer.Body, manifest.MaxSize+1))
	if err != nil {
		return nil, "", fmt.Errorf("read the answer: %w", err)
	}
	if len(data) > manifest.MaxSize {
		return nil, "", fmt.Errorf("it serves more than %d MiB; split it", manifest.MaxSize>>20)
	}
	if data == nil {
		data = []byte{}
	}
	return data, answer.Header.Get("ETag"), nil
}
