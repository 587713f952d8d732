package streaming

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
)

// The headers of port-forward streams.
const (
	portHeader      = "port"
	requestIDHeader = "requestID"
)

// maxPairs is how many connections a client may have begun and not completed.
const maxPairs = 256

// pair is one forwarded connection: a stream for its data, and one for what
// went wrong with it.
type pair struct {
	port      uint16
	data, err httpstream.Stream
	link      *link          // which notes what moves
	answered  sync.WaitGroup // until the client knows that both were taken
	expiry    *time.Timer
}

// pairs brings together the streams that a client opens.
type pairs struct {
	ports    []int32
	timeout  time.Duration
	complete chan *pair
	done     chan struct{}

	mu      sync.Mutex
	pending map[string]*pair
}

func newPairs(ports []int32, timeout time.Duration) *pairs {
	return &pairs{
		ports: ports, timeout: timeout, complete: make(chan *pair), done: make(chan struct{}),
		pending: map[string]*pair{},
	}
}

// close lets go of what never became complete.
func (ps *pairs) close() {
	close(ps.done)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.pending {
		p.expiry.Stop()
	}
}

// add takes a stream, or refuses it.
func (ps *pairs) add(st httpstream.Stream, replied <-chan struct{}) error {
	h := st.Headers()
	n, err := strconv.ParseUint(h.Get(portHeader), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("the %s header is %.20q; ports go from 1 to 65535", portHeader, h.Get(portHeader))
	}
	port := uint16(n)
	if !allowed(ps.ports, port) {
		return fmt.Errorf("port %d is none of those that were asked for", port)
	}
	id, err := requestID(st)
	if err != nil {
		return err
	}
	p, complete, err := ps.join(id, port, st)
	if err != nil {
		return err
	}
	go func() { // the answer goes out after this function returns
		defer p.answered.Done()
		select {
		case <-replied:
		case <-ps.done:
		}
	}()
	if !complete {
		return nil
	}
	select {
	case ps.complete <- p:
		return nil
	case <-ps.done:
		return fmt.Errorf("the connection has ended")
	}
}

// join adds the stream to its pair and says whether that is complete now.
func (ps *pairs) join(id string, port uint16, st httpstream.Stream) (_ *pair, complete bool, _ error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.pending[id]
	if p == nil {
		if len(ps.pending) >= maxPairs {
			return nil, false, fmt.Errorf("%d connections wait for their second stream already", maxPairs)
		}
		p = &pair{port: port}
		p.answered.Add(2)
		p.expiry = time.AfterFunc(ps.timeout, func() { ps.expire(id, p) })
		ps.pending[id] = p
	}
	slot := &p.data
	if st.Headers().Get(streamTypeHeader) == "error" {
		slot = &p.err
	}
	if *slot != nil || p.port != port {
		return nil, false, fmt.Errorf("request %.40q has such a stream already", id)
	}
	*slot = st
	if p.data == nil || p.err == nil {
		return p, false, nil
	}
	p.expiry.Stop()
	delete(ps.pending, id)
	return p, true, nil
}

// expire drops a pair whose second stream did not come.
func (ps *pairs) expire(id string, p *pair) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.pending[id] != p {
		return
	}
	delete(ps.pending, id)
	for _, st := range []httpstream.Stream{p.data, p.err} {
		if st != nil {
			_ = st.Reset()
		}
	}
}

// requestID tells which streams belong together. Old clients send none; then
// the error stream's number is the id, and the data stream's is the next odd one.
func requestID(st httpstream.Stream) (string, error) {
	kind, id := st.Headers().Get(streamTypeHeader), st.Headers().Get(requestIDHeader)
	switch {
	case kind != "error" && kind != "data":
		return "", fmt.Errorf("the %s header is %.20q; it must be data or error", streamTypeHeader, kind)
	case id != "":
		return id, nil
	case kind == "data":
		return strconv.FormatUint(uint64(st.Identifier())-2, 10), nil
	}
	return strconv.FormatUint(uint64(st.Identifier()), 10), nil
}
