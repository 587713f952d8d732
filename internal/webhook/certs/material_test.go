package certs

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"
)

var (
	hosts = []string{"webhook.ns.svc", "127.0.0.1"}
	began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// made is the material that was made at the beginning.
func made(t *testing.T) material {
	t.Helper()
	m, changed, err := material{}.renew(hosts, began)
	if err != nil || !changed {
		t.Fatalf("changed %v: %v", changed, err)
	}
	return m
}

// believed says that whoever has the bundle takes the serving certificate.
func believed(m material, bundle []byte, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, h := range hosts {
		if _, err := m.serving.leaf.Verify(x509.VerifyOptions{DNSName: h, Roots: roots, CurrentTime: at}); err != nil {
			return err
		}
	}
	return nil
}

func TestRenew(t *testing.T) {
	day := 24 * time.Hour
	for name, test := range map[string]struct {
		hosts              []string
		after              time.Duration
		change             func(*material)
		serving, authority bool // are others than before
		next               bool // is there
	}{
		"nothing is due":        {after: time.Hour},
		"two thirds are over":   {after: 61 * day, serving: true},
		"a little less":         {after: 59 * day},
		"it has ended":          {after: 91 * day, serving: true},
		"the authority is old":  {after: 490 * day, serving: true, next: true},
		"the authority ended":   {after: 800 * day, serving: true, authority: true},
		"another name":          {hosts: []string{"other.ns.svc"}, serving: true},
		"names in other order":  {hosts: []string{"127.0.0.1", "webhook.ns.svc"}},
		"no serving":            {change: func(m *material) { m.serving = nil }, serving: true},
		"no authority":          {change: func(m *material) { m.authority = nil }, serving: true, authority: true},
		"the clock was wrong":   {after: -400 * day, serving: true, authority: true},
		"serving is no one's":   {change: func(m *material) { m.serving, _ = newAuthority(began) }, serving: true},
		"authority is no such":  {change: func(m *material) { m.authority = m.serving }, serving: true, authority: true},
		"the successor is dead": {change: func(m *material) { m.next, _ = newAuthority(began.Add(-800 * day)) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := made(t)
			if test.change != nil {
				test.change(&m)
			}
			for_ := hosts
			if test.hosts != nil {
				for_ = test.hosts
			}
			now := began.Add(test.after)
			got, _, err := m.renew(for_, now)
			if err != nil {
				t.Fatal(err)
			}
			if (got.serving != m.serving) != test.serving || (got.authority != m.authority) != test.authority || (got.next != nil) != test.next {
				t.Errorf("serving is new: %v, authority: %v, next: %v", got.serving != m.serving, got.authority != m.authority, got.next != nil)
			}
			if test.hosts == nil {
				if err := believed(got, got.bundle(), now); err != nil {
					t.Error(err)
				}
			}
			if _, again, err := got.renew(for_, now); err != nil || again {
				t.Errorf("changed again: %v %v", again, err)
			}
		})
	}
}

// From one authority to the next, what is served is believed by whoever has the
// bundle of the step before.
func TestAuthoritiesOverlap(t *testing.T) {
	m := made(t)
	now, steps := began, 0
	for range 3 * 365 * 24 {
		now = now.Add(time.Hour)
		next, changed, err := m.renew(hosts, now)
		if err != nil {
			t.Fatal(err)
		}
		if !changed {
			continue
		}
		steps++
		if err := believed(next, m.bundle(), now); err != nil {
			t.Fatalf("after %s: %v", now.Sub(began), err)
		}
		if err := believed(m, next.bundle(), now); err != nil {
			t.Fatalf("what others still serve after %s: %v", now.Sub(began), err)
		}
		m = next
	}
	if steps < 15 || m.previous == nil {
		t.Errorf("%d steps, previous %v", steps, m.previous != nil)
	}
}

func TestMaterialGoesThroughASecret(t *testing.T) {
	m := made(t)
	m.next, _ = newAuthority(began)
	m.previous = m.authority.cert
	data := m.write(map[string][]byte{"others": []byte("x")})
	got, broken := read(data)
	if len(broken) > 0 || string(data["others"]) != "x" || !bytes.Equal(got.bundle(), m.bundle()) || !got.serving.leaf.Equal(m.serving.leaf) {
		t.Errorf("broken: %v", broken)
	}
	data[keyServing] = []byte("garbage")
	if got, broken := read(data); got.serving != nil || len(broken) != 1 {
		t.Errorf("broken: %v", broken)
	}
	if _, ok := (material{authority: m.authority}).write(data)[keyNext]; ok {
		t.Error("the successor stays in the Secret")
	}
}
