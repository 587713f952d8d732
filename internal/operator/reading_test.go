package operator

import (
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/test/apiserver"
)

// ready asks the readiness probe.
func (b *bound) ready() (int, string) {
	resp, err := http.Get("http://" + b.health + "/readyz?verbose")
	if err != nil {
		return 0, err.Error() // it does not listen yet
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// watched are the kinds that the chart lets the operator watch, as checks name them.
func (b *bound) watched() []string {
	var out []string
	for key, r := range kinds {
		for _, right := range b.rights {
			_, version, _ := strings.Cut(key, " ")
			group := ""
			if words := strings.Split(version, "/"); len(words) == 3 {
				group = words[1]
			}
			if version != "" && right.verb == "watch" && right.resource == path.Join(group, path.Base(r.Path)) {
				out = append(out, "read-"+strings.ToLower(r.Kind))
			}
		}
	}
	return out
}

// A replica is ready when it has read each kind that it may watch, and says which it
// has not. Whether it leads makes no difference.
func TestReadiness(t *testing.T) {
	for name, inGardener := range map[string]bool{"nodes": false, "seed": true} {
		for role, leads := range map[string]bool{"leader": true, "waiting": false} {
			t.Run(name+"/"+role, func(t *testing.T) {
				var closed atomic.Bool
				closed.Store(true)
				b := startBound(t, inGardener, func(b *bound) {
					b.Intercept(func(c apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
						if discovered(c, w, r) {
							return true
						}
						if closed.Load() && (c.Verb == "list" || c.Verb == "watch") {
							w.WriteHeader(http.StatusServiceUnavailable)
							return true
						}
						return false
					})
					if !leads {
						b.Put(kinds["Lease"], heldLease())
					}
				})
				names := b.watched()
				if len(names) < 3 {
					t.Fatalf("only %v", names)
				}
				b.until("an answer", func() bool { code, _ := b.ready(); return code != 0 })
				code, text := b.ready()
				for _, name := range names {
					if code == http.StatusOK || !strings.Contains(text, "[-]"+name+" failed") {
						t.Errorf("%s is not told: %d\n%s", name, code, text)
					}
				}
				if strings.Count(text, "[-]read-") != len(names) { // its webhook has a certificate when it has
					t.Errorf("these are to be read: %v\n%s", names, text)
				}
				closed.Store(false)
				b.until("readiness", func() bool { code, _ := b.ready(); return code == http.StatusOK })
				var lease coordinationv1.Lease
				b.until("the lease", func() bool { return b.read("Lease", operatorsIn+"/fairlead-operator", &lease) })
				if is := *lease.Spec.HolderIdentity != holder; is != leads {
					t.Errorf("it leads: %v", is)
				}
			})
		}
	}
}

const holder = "another replica"

// heldLease is that of a replica that leads for long.
func heldLease() *coordinationv1.Lease {
	now := metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease, Namespace: operatorsIn},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(holder), LeaseDurationSeconds: new(int32(time.Hour / time.Second)), AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(1)),
		},
	}
}
