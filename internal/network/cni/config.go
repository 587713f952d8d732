package cni

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"fairlead.run/internal/errdefs"
)

// Config says where configurations and plugins are.
type Config struct {
	// ConfDir holds the conflists. Default /etc/cni/net.d.
	ConfDir string
	// Conflist names one file and makes ConfDir meaningless. With it, the driver
	// counts as configured even while the file is missing.
	Conflist string
	// BinDirs are searched for plugins in this order. Default /opt/cni/bin and
	// /usr/lib/cni, where Debian has them.
	BinDirs []string
	// CacheDir is where libcni keeps results. Required, on persistent storage.
	CacheDir string
	// AddTimeout and DelTimeout bound one run through all plugins of a conflist.
	// Defaults: 100 s, which is below the kubelet's own, and 60 s.
	AddTimeout, DelTimeout time.Duration
	// Settle is how long the directory has to be quiet before it is read again,
	// so that half-written files are not. Default 200 ms.
	Settle time.Duration
	// Log gets what background work has to report. Default slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.ConfDir == "" {
		c.ConfDir = "/etc/cni/net.d"
	}
	if len(c.BinDirs) == 0 {
		c.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}
	}
	if c.AddTimeout == 0 {
		c.AddTimeout = 100 * time.Second
	}
	if c.DelTimeout == 0 {
		c.DelTimeout = 60 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 200 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate says which field is wrong.
func (c Config) Validate() error {
	if !filepath.IsAbs(c.CacheDir) {
		return fmt.Errorf("CNI cache directory %q is not an absolute path: %w", c.CacheDir, errdefs.ErrInvalidArgument)
	}
	for _, p := range append([]string{c.ConfDir, c.Conflist}, c.BinDirs...) {
		if p != "" && !filepath.IsAbs(p) {
			return fmt.Errorf("CNI path %q is not absolute: %w", p, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
