package daemon

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	adminv1 "fairlead.run/api/admin/v1"
)

// connected serves the admin calls that need no other part of a daemon.
func connected(t *testing.T) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	adminv1.Register(g, admin{})
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// wantProfile reads a profile, which is packed.
func wantProfile(t *testing.T, p *adminv1.Profiling) {
	t.Helper()
	var packed bytes.Buffer
	if err := p.Copy(&packed); err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatalf("it is no profile: %v", err)
	}
	if raw, err := io.ReadAll(r); err != nil || !bytes.Contains(raw, []byte("nanoseconds")) {
		t.Fatalf("it is no profile of processor time: %v", err)
	}
}

func TestProfileEndsWhenItsCallerSays(t *testing.T) {
	conn := connected(t)
	for range 2 { // the first leaves nothing in the way of the second
		p, err := adminv1.Profile(t.Context(), conn, adminv1.ProfileRequest{Seconds: adminv1.MaxProfileSeconds})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.End(); err != nil {
			t.Fatal(err)
		}
		wantProfile(t, p)
	}
}

func TestProfileEndsWithItsTime(t *testing.T) {
	p, err := adminv1.Profile(t.Context(), connected(t), adminv1.ProfileRequest{Seconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	wantProfile(t, p)
}

func TestOneProfileAtATime(t *testing.T) {
	conn := connected(t)
	req := adminv1.ProfileRequest{Seconds: adminv1.MaxProfileSeconds}
	p, err := adminv1.Profile(t.Context(), conn, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adminv1.Profile(t.Context(), conn, req); err == nil || !strings.Contains(err.Error(), "another profile is being taken") {
		t.Errorf("a second profile: %v", err)
	}
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	wantProfile(t, p) // the second one did not end it
}

// The daemon must not go on with a profile that nobody waits for.
func TestProfileEndsWithItsCaller(t *testing.T) {
	conn := connected(t)
	req := adminv1.ProfileRequest{Seconds: adminv1.MaxProfileSeconds}
	ctx, leave := context.WithCancel(t.Context())
	if _, err := adminv1.Profile(ctx, conn, req); err != nil {
		t.Fatal(err)
	}
	leave()
	for { // until the daemon has noticed
		p, err := adminv1.Profile(t.Context(), conn, req)
		if err == nil {
			if err := p.End(); err != nil {
				t.Fatal(err)
			}
			wantProfile(t, p)
			return
		}
		if !strings.Contains(err.Error(), "another profile is being taken") {
			t.Fatal(err)
		}
	}
}

func TestProfileWithoutAnEndIsRefused(t *testing.T) {
	conn := connected(t)
	for _, seconds := range []int{-1, 0, adminv1.MaxProfileSeconds + 1} {
		if _, err := adminv1.Profile(t.Context(), conn, adminv1.ProfileRequest{Seconds: seconds}); err == nil || !strings.Contains(err.Error(), "want 1 to 600") {
			t.Errorf("%d seconds: %v", seconds, err)
		}
	}
}
