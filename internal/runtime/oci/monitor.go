package oci

import (
	"context"
	"io"

	"fairlead.run/internal/monitor/client"
)

// MonitorStreams is the monitor's client as Streams wants it.
type MonitorStreams struct{ *client.Client }

// Attach implements StreamSource.
func (m MonitorStreams) Attach(ctx context.Context, id string, stdin, stdout, stderr bool) (Session, io.Reader, io.Reader, error) {
	s, err := m.Client.Attach(ctx, id, client.AttachStreams{Stdin: stdin, Stdout: stdout, Stderr: stderr})
	if err != nil {
		return nil, nil, nil, err
	}
	return s, s.Stdout, s.Stderr, nil
}

var (
	_ Monitor      = (*client.Client)(nil)
	_ ExitSource   = (*client.Client)(nil)
	_ StreamSource = MonitorStreams{}
	_ Session      = (*client.AttachSession)(nil)
)
