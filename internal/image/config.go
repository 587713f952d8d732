package image

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/containerd/platforms"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/layer"
	"fairlead.run/internal/image/refs"
)

// Config says where a Store lives and what it may use. The zero value of every
// field but Root stands for the default.
type Config struct {
	Root                   string        // absolute path of the persistent directory
	CertsDirs              []string      // folders of hosts.toml trees; the first that exists counts. Default: DefaultCertsDirs
	DockerConfigs          []string      // docker config.json files with credentials, in order. Nil: DefaultDockerConfigs
	Platform               string        // "linux/arm64/v8"; default: this machine's
	MaxConcurrentDownloads int           // layers fetched at once, over all pulls; default 6
	MaxConcurrentUnpacks   int           // layers unpacked at once, over all pulls; default: number of CPUs
	StallTimeout           time.Duration // a pull without a single byte for this long is given up; default 5 min
	Limits                 Limits
	Pinned                 []string // names of images that are pinned: whole ones, or beginnings of full ones with a * behind
	// Untouched leaves what an earlier process left as it is, for an audit.
	// SyncUses frees it.
	Untouched bool
	Logger    *slog.Logger // default: slog.Default()
}

// Limits bound what one layer may do to this node.
type Limits = layer.Limits

// DefaultCertsDirs are the folders that hosts.toml trees are looked for in:
// Fairlead's own, and containerd's for machines that had it before.
func DefaultCertsDirs() []string {
	return []string{"/etc/fairlead/certs.d", "/etc/containerd/certs.d"}
}

// DefaultDockerConfigs are the files that credentials are looked up in when a
// request brings none, most specific first.
func DefaultDockerConfigs() []string {
	var files []string
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		files = append(files, filepath.Join(dir, "config.json"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".docker", "config.json"))
	}
	return append(files, "/var/lib/kubelet/config.json")
}

// complete fills in the defaults, or says which field is wrong.
func (c Config) complete() (Config, error) {
	if !filepath.IsAbs(c.Root) {
		return c, fmt.Errorf("image root %q is not an absolute path: %w", c.Root, errdefs.ErrInvalidArgument)
	}
	c.Root = filepath.Clean(c.Root)
	if c.CertsDirs == nil {
		c.CertsDirs = DefaultCertsDirs()
	}
	if c.DockerConfigs == nil {
		c.DockerConfigs = DefaultDockerConfigs()
	}
	if c.Platform == "" {
		c.Platform = platforms.Format(platforms.DefaultSpec())
	}
	if _, err := platforms.Parse(c.Platform); err != nil {
		return c, fmt.Errorf("image platform %q, want OS/architecture as in linux/arm64: %w", c.Platform, errdefs.ErrInvalidArgument)
	}
	if c.MaxConcurrentDownloads <= 0 {
		c.MaxConcurrentDownloads = 6
	}
	if c.MaxConcurrentUnpacks <= 0 {
		c.MaxConcurrentUnpacks = runtime.NumCPU()
	}
	if c.StallTimeout <= 0 {
		c.StallTimeout = 5 * time.Minute
	}
	if c.Limits.LayerEntries <= 0 {
		c.Limits.LayerEntries = 2_000_000
	}
	if c.Limits.LayerBytes <= 0 {
		c.Limits.LayerBytes = 256 << 30
	}
	pinned, err := refs.NormalizePins(c.Pinned)
	if err != nil {
		return c, err
	}
	c.Pinned = pinned
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}
