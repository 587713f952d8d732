package images

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

// Registry serves images on a port, a loopback one if not said otherwise, by the distribution
// specification. Its methods may be called while it serves.
type Registry struct {
	srv    *httptest.Server
	mu     sync.Mutex
	repos  map[string]*repo
	auth   auth
	faults []*Fault
	seen   []string
	told   []string
	closed chan struct{}
}

type repo struct {
	manifests map[string]manifest // by tag and by digest
	blobs     map[digest.Digest][]byte
}

type manifest struct {
	mediaType string
	body      []byte
}

// Fault makes the registry misbehave. Method and Path select requests (an empty
// one selects all); the first fault that fits is used up to Times times.
type Fault struct {
	Method  string
	Path    string        // part of the URL's path
	Times   int           // 0: always
	Delay   time.Duration // before the answer
	Hold    chan struct{} // closed when the answer may come; nil: at once
	Status  int           // answer with this, and nothing else
	Corrupt bool          // flip a byte of the body
	Cut     int64         // close the connection after so many bytes of the body
	Stall   int64         // send so many bytes, then nothing until the client hangs up
	NoRange bool          // ignore that only a part was asked for
	used    int
}

// NewRegistry starts a registry in plain HTTP. Close ends it.
func NewRegistry() *Registry {
	r := &Registry{repos: map[string]*repo{}, closed: make(chan struct{})}
	r.srv = httptest.NewServer(r)
	return r
}

// NewRegistryAt starts one on a TCP address that need not be a loopback one.
func NewRegistryAt(address string) (*Registry, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	r := &Registry{repos: map[string]*repo{}, closed: make(chan struct{})}
	r.srv = &httptest.Server{Listener: l, Config: &http.Server{Handler: r}}
	r.srv.Start()
	return r, nil
}

// NewTLSRegistry starts a registry with a certificate that nobody trusts.
func NewTLSRegistry() *Registry {
	r := &Registry{repos: map[string]*repo{}, closed: make(chan struct{})}
	r.srv = httptest.NewTLSServer(r)
	return r
}

// Close ends the registry and cuts its connections.
func (r *Registry) Close() {
	close(r.closed) // lets go of answers that stall
	r.srv.CloseClientConnections()
	r.srv.Close()
}

// Host is the registry's address, as it stands in image names.
func (r *Registry) Host() string { return r.srv.Listener.Addr().String() }

// Certificate is the PEM form of a TLS registry's certificate.
func (r *Registry) Certificate() []byte { return certificatePEM(r.srv) }

// Push puts an image, with everything it refers to, under "team/app:1.0" and
// returns its full name.
func (r *Registry) Push(name string, img *Image) string {
	repoName, tag, _ := strings.Cut(name, ":")
	r.mu.Lock()
	defer r.mu.Unlock()
	rp := r.repo(repoName)
	for d, b := range img.Blobs {
		rp.blobs[d] = b
		if t := manifestType(b); t != "" {
			rp.manifests[d.String()] = manifest{t, b}
		}
	}
	rp.manifests[img.Desc.Digest.String()] = manifest{img.Desc.MediaType, img.Blobs[img.Desc.Digest]}
	if tag != "" {
		rp.manifests[tag] = rp.manifests[img.Desc.Digest.String()]
	}
	return r.Host() + "/" + name
}

// PushManifest puts any document under a tag and returns its full name.
func (r *Registry) PushManifest(name, mediaType string, body []byte) string {
	repoName, tag, _ := strings.Cut(name, ":")
	r.mu.Lock()
	defer r.mu.Unlock()
	rp := r.repo(repoName)
	rp.manifests[tag] = manifest{mediaType, body}
	rp.manifests[digest.FromBytes(body).String()] = rp.manifests[tag]
	return r.Host() + "/" + name
}

// DropBlob makes the registry lose a blob.
func (r *Registry) DropBlob(repoName string, d digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.repo(repoName).blobs, d)
}

// DropRepo loses everything of a repository.
func (r *Registry) DropRepo(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.repos, name)
}

// Inject adds faults.
func (r *Registry) Inject(faults ...Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range faults {
		r.faults = append(r.faults, &f)
	}
}

// Heal removes all faults.
func (r *Registry) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

// Requests are the requests so far, as "GET /v2/app/blobs/sha256:...".
func (r *Registry) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// Authorizations are the Authorization headers that came with requests so far.
func (r *Registry) Authorizations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

// repo is called with the lock held.
func (r *Registry) repo(name string) *repo {
	if r.repos[name] == nil {
		r.repos[name] = &repo{manifests: map[string]manifest{}, blobs: map[digest.Digest][]byte{}}
	}
	return r.repos[name]
}

func manifestType(b []byte) string {
	var m struct {
		MediaType     string `json:"mediaType"`
		SchemaVersion int    `json:"schemaVersion"`
	}
	if json.Unmarshal(b, &m) != nil || m.SchemaVersion == 0 {
		return ""
	}
	return m.MediaType
}

// ServeHTTP is the registry.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.seen = append(r.seen, req.Method+" "+req.URL.Path)
	if a := req.Header.Get("Authorization"); a != "" {
		r.told = append(r.told, a)
	}
	fault := r.fault(req)
	r.mu.Unlock()
	if !r.answers(req, fault) {
		return
	}
	if fault.Status != 0 {
		http.Error(w, `{"errors":[{"code":"UNKNOWN","message":"injected"}]}`, fault.Status)
		return
	}
	if req.URL.Path == "/token" {
		r.serveToken(w, req)
		return
	}
	if !r.allowed(w, req) {
		return
	}
	body, mediaType, ok := r.find(req.URL.Path)
	if !ok {
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such thing"}]}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest.FromBytes(body).String())
	r.deliver(w, req, fault, body)
}

// answers waits for as long as the fault wants, and says whether somebody still
// wants the answer then.
func (r *Registry) answers(req *http.Request, f Fault) bool {
	var delay <-chan time.Time
	hold := f.Hold
	if f.Delay > 0 {
		delay = time.After(f.Delay)
	}
	for delay != nil || hold != nil {
		select {
		case <-delay:
			delay = nil
		case <-hold:
			hold = nil
		case <-req.Context().Done():
			return false
		case <-r.closed:
			return false
		}
	}
	return true
}

// fault is called with the lock held.
func (r *Registry) fault(req *http.Request) Fault {
	for _, f := range r.faults {
		if f.Method != "" && f.Method != req.Method || !strings.Contains(req.URL.Path, f.Path) {
			continue
		}
		if f.Times > 0 && f.used >= f.Times {
			continue
		}
		f.used++
		return *f
	}
	return Fault{}
}

// find looks up /v2/REPO/manifests/REF and /v2/REPO/blobs/DIGEST.
func (r *Registry) find(path string) (body []byte, mediaType string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return nil, "", false
	}
	if rest == "" {
		return []byte("{}"), "application/json", true
	}
	if name, ref, ok := strings.Cut(rest, "/manifests/"); ok && r.repos[name] != nil {
		m, ok := r.repos[name].manifests[ref]
		return m.body, m.mediaType, ok
	}
	if name, ref, ok := strings.Cut(rest, "/blobs/"); ok && r.repos[name] != nil {
		b, ok := r.repos[name].blobs[digest.Digest(ref)]
		return b, "application/octet-stream", ok
	}
	return nil, "", false
}

// deliver sends the body, as far as the fault allows.
func (r *Registry) deliver(w http.ResponseWriter, req *http.Request, f Fault, body []byte) {
	if f.Corrupt && len(body) > 0 {
		body = bytes.Clone(body)
		body[len(body)/2] ^= 0xff
	}
	if f.NoRange {
		req.Header.Del("Range")
	}
	stop := f.Cut
	if f.Stall > 0 {
		stop = f.Stall
	}
	if stop == 0 || stop >= int64(len(body)) || req.Method == http.MethodHead {
		if f.NoRange {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			_, _ = w.Write(body)
			return
		}
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body))
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body[:stop])
	_ = http.NewResponseController(w).Flush()
	if f.Stall > 0 {
		select {
		case <-req.Context().Done():
		case <-r.closed:
		}
	}
	panic(http.ErrAbortHandler) // the server's way to cut a connection
}
