package cri

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/pelletier/go-toml/v2"

	"fairlead.run/internal/errdefs"
)

// inForce asks CRI-O for the handlers in the configuration that it runs with, which
// it serves beside the CRI, and no field of the CRI has. One that does not serve it
// has none that are known.
func (c Client) inForce(ctx context.Context) (map[string]Loaded, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	}
	web := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://crio/config", nil)
	if err != nil {
		return nil, fmt.Errorf("ask CRI-O for its configuration: %w", err)
	}
	reply, err := web.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ask CRI-O for its configuration: %w (%w)", err, errdefs.ErrUnavailable)
		}
		return nil, nil // it does not speak HTTP there
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(reply.Body, maxMessage))
	if err != nil {
		return nil, fmt.Errorf("ask CRI-O for its configuration: %w (%w)", err, errdefs.ErrUnavailable)
	}
	return readInForce(data)
}

func readInForce(data []byte) (map[string]Loaded, error) {
	var read struct {
		CRIO struct {
			Runtime struct {
				Runtimes map[string]struct {
					Type       string `toml:"runtime_type"`
					Path       string `toml:"runtime_path"`
					ConfigPath string `toml:"runtime_config_path"`
				} `toml:"runtimes"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	if err := toml.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("read the configuration that CRI-O shows: %w", err)
	}
	all := map[string]Loaded{}
	for name, r := range read.CRIO.Runtime.Runtimes {
		all[name] = Loaded{Type: r.Type, Path: r.Path, ConfigPath: r.ConfigPath}
	}
	return all, nil
}
