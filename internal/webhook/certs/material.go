package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret.
const (
	keyAuthority     = "ca.crt"
	keyAuthorityKey  = "ca.key"
	keyNext          = "ca-next.crt"
	keyNextKey       = "ca-next.key"
	keyPrevious      = "ca-previous.crt"
	keyServing       = corev1.TLSCertKey
	keyServingKey    = corev1.TLSPrivateKeyKey
	settled          = 5 * time.Minute // from when an authority is told until it signs
	secretLabel      = "app.kubernetes.io/managed-by"
	secretLabelValue = "fairlead-webhook"
)

// material is what the replicas share.
type material struct {
	authority *pair // signs
	next      *pair // will sign; nil most of the time
	previous  []byte
	serving   *pair
}

// read takes what can be used of a Secret. What is broken counts as missing, and
// is named.
func read(data map[string][]byte) (m material, broken []string) {
	part := func(cert, key string) *pair {
		p, err := readPair(data[cert], data[key])
		if err != nil {
			broken = append(broken, cert+": "+err.Error())
		}
		return p
	}
	m.authority, m.next = part(keyAuthority, keyAuthorityKey), part(keyNext, keyNextKey)
	m.serving = part(keyServing, keyServingKey)
	m.previous = data[keyPrevious]
	return m, broken
}

// write puts the material in place of what a Secret has of it.
func (m material) write(data map[string][]byte) map[string][]byte {
	out := maps.Clone(data)
	if out == nil {
		out = map[string][]byte{}
	}
	put := func(cert, key string, p *pair) {
		delete(out, cert)
		delete(out, key)
		if p != nil {
			out[cert], out[key] = p.cert, p.keyBlock
		}
	}
	put(keyAuthority, keyAuthorityKey, m.authority)
	put(keyNext, keyNextKey, m.next)
	put(keyServing, keyServingKey, m.serving)
	delete(out, keyPrevious)
	if len(m.previous) > 0 {
		out[keyPrevious] = m.previous
	}
	return out
}

// bundle is what API servers are told to believe: who signs, who will, and who did.
func (m material) bundle() []byte {
	var out []byte
	for _, p := range []*pair{m.authority, m.next} {
		if p != nil {
			out = append(out, p.cert...)
		}
	}
	return append(out, m.previous...)
}

// renew is the material as it has to be now, and whether that is a change.
func (m material) renew(hosts []string, now time.Time) (material, bool, error) {
	was := m
	if err := m.renewAuthority(now); err != nil {
		return was, false, err
	}
	if !valid(m.serving, now) || m.serving.old(now) || !m.serving.isFor(hosts, m.authority) {
		serving, err := newServing(hosts, m.authority, now)
		if err != nil {
			return was, false, err
		}
		m.serving = serving
	}
	return m, m.authority != was.authority || m.next != was.next || m.serving != was.serving || !bytes.Equal(m.previous, was.previous), nil
}

// renewAuthority goes one step: an authority that is due gets a successor, which
// takes over when API servers have had time to hear of it. One that has ended
// leaves no choice.
func (m *material) renewAuthority(now time.Time) (err error) {
	if len(m.previous) > 0 && !holds(m.previous, now) {
		m.previous = nil
	}
	if m.next != nil && !valid(m.next, now) {
		m.next = nil
	}
	ended := !valid(m.authority, now) || !m.authority.leaf.IsCA
	switch {
	case m.next != nil && (ended || now.After(m.next.born().Add(settled))):
		if m.authority != nil {
			m.previous = m.authority.cert
		}
		m.authority, m.next = m.next, nil
	case ended:
		m.authority, err = newAuthority(now)
	case m.next == nil && m.authority.old(now):
		m.next, err = newAuthority(now)
	}
	return err
}

// holds says that a certificate can be read and has not ended.
func holds(text []byte, now time.Time) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.Before(cert.NotAfter)
}
