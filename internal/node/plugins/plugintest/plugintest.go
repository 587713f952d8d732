// Package plugintest is a plugin for tests: it serves its registration by gRPC on a
// unix socket in a folder, as real ones do.
package plugintest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Plugin is one. Fields are set before it is served.
type Plugin struct {
	registerapi.UnimplementedRegistrationServer
	Type, Name, Endpoint string
	Versions             []string
	// Told has what the node has said of it; it is never full in tests.
	Told chan *registerapi.RegistrationStatus

	socket string
	stop   func()
}

// New makes a plugin.
func New(kind, name, endpoint string, versions ...string) *Plugin {
	return &Plugin{Type: kind, Name: name, Endpoint: endpoint, Versions: versions, Told: make(chan *registerapi.RegistrationStatus, 1000)}
}

// Serve begins to serve it in a folder. It ends with the test, or by Stop.
func (p *Plugin) Serve(t *testing.T, folder string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	p.socket = filepath.Join(folder, p.Name+"-reg.sock")
	_ = os.Remove(p.socket)
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan struct{})
	registerapi.RegisterRegistrationServer(server, p)
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	p.stop = func() {
		server.Stop() // it takes its socket away
		<-done
	}
	t.Cleanup(func() { p.Stop() })
}

// Stop ends it, and takes its socket away.
func (p *Plugin) Stop() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// Kill ends it and leaves its socket, which nobody listens at any more.
func (p *Plugin) Kill(t *testing.T) {
	t.Helper()
	p.Stop()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

// GetInfo tells what it is.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: p.Type, Name: p.Name, Endpoint: p.Endpoint, SupportedVersions: p.Versions}, nil
}

// NotifyRegistrationStatus keeps what it is told.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	p.Told <- s
	return &registerapi.RegistrationStatusResponse{}, nil
}
