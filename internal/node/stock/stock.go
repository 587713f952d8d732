// Package stock has the images in stock that the pods of a node need: it joins what
// pulls them, the credentials for that, what removes images, containers and sandboxes
// that nobody needs any more, and what rotates logs, as the flags of a node ask for.
//
// It is wiring, and decides nothing.
package stock

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/garbage"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/images/provider"
	"fairlead.run/internal/node/logs/rotate"
)

// Settings are what a user may choose. Start from Default.
type Settings struct {
	Parallel  int // pulls at a time; 0 means any number
	Rate      images.Rate
	Providers Providers // empty for none
	Verify    images.Verification
	Allowlist []string // for images.NeverVerifyAllowlistedImages
	Images    garbage.ImagePolicy
	Dead      garbage.ContainerPolicy
	Logs      Logs
}

// Logs are how much of the logs of containers is kept.
type Logs struct {
	MaxSize  resource.Quantity // of a file, in bytes, from which on the next one is begun; less than 0 for never
	MaxFiles int               // of each container, the current one included; at least 2
	Workers  int               // logs that are rotated at a time; at least 1
	Every    time.Duration     // between two looks; at least LeastLogInterval
}

// LeastLogInterval is the least time between two looks at logs, as for a kubelet.
const LeastLogInterval = 3 * time.Second

// Providers are credential provider plugins.
type Providers struct {
	Config string // file, or folder of files
	Dir    string // that has their programs
}

// Default is what a node does where nothing is said. A kubelet pulls one image at a
// time then.
var Default = Settings{Parallel: 5, Rate: images.Rate{Burst: 10}, Images: garbage.DefaultImagePolicy, Dead: garbage.DefaultContainerPolicy, Logs: DefaultLogs}

// DefaultLogs are a kubelet's: 10Mi, and five files; one at a time, each ten seconds.
var DefaultLogs = Logs{
	MaxSize: *resource.NewQuantity(rotate.DefaultSize, resource.BinarySI), MaxFiles: rotate.DefaultFiles,
	Workers: rotate.DefaultWorkers, Every: rotate.DefaultInterval,
}

// Rotator makes what keeps them so; of c neither size and number of files are used, nor
// workers and interval.
func (l Logs) Rotator(c rotate.Config) (*rotate.Rotator, error) {
	c.Size, c.Files, c.Workers, c.Interval = l.MaxSize.Value(), l.MaxFiles, l.Workers, l.Every
	return rotate.New(c)
}

// Config is what a Stock works with. What is not said to be optional is required.
type Config struct {
	Settings
	Runtime  runtimeapi.RuntimeServiceClient
	Client   runtimeapi.ImageServiceClient
	Accounts provider.Accounts  // nil without an API server
	Root     string             // persistent folder
	Docker   images.DockerFiles // of the node; nil for none
	// Warn tells of what is wrong by an event of the node, and must not wait. Nil tells nobody.
	Warn func(reason, message string)
	Log  *slog.Logger
}

// Stock is that of a node. It is the outfit.Images of its agent.
type Stock struct {
	*images.Manager
	cfg Config
}

// New makes a Stock. It fails if a setting makes no sense.
func New(cfg Config) (*Stock, error) {
	credentials, err := cfg.credentials()
	if err != nil {
		return nil, err
	}
	m, err := images.New(images.Config{
		Client: cfg.Client, Credentials: credentials, Parallel: cfg.Parallel, Rate: cfg.Rate, Records: filepath.Join(cfg.Root, "images"),
		Verify: cfg.Verify, Allowlist: cfg.Allowlist, Warn: cfg.Warn, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Stock{m, cfg}, nil
}

// credentials are those of the node's own files, then those of plugins; nil without any.
func (c Config) credentials() (images.Credentials, error) {
	var out images.Several
	if len(c.Docker) > 0 {
		out = append(out, c.Docker)
	}
	plugins, err := c.plugins()
	if err != nil {
		return nil, err
	}
	if plugins != nil {
		out = append(out, plugins)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// plugins are those that are configured; nil without any.
func (c Config) plugins() (*provider.Providers, error) {
	p := c.Providers
	switch {
	case p == Providers{}:
		return nil, nil
	case p.Config == "" || p.Dir == "":
		return nil, errors.New("credential providers need both a configuration and the folder of their programs")
	}
	plugins, err := provider.Load(p.Config)
	if err != nil {
		return nil, err
	}
	return provider.New(provider.Config{Plugins: plugins, Dir: p.Dir, Accounts: c.Accounts})
}

// Pods are those of an agent, as the Collector asks for them: an agent.Agent.
type Pods interface {
	Has(uid string) bool
	Finished(uid string) bool
	Mine(*runtimeapi.PodSandbox) bool
	VolumeImages() []string
}

// Collector makes what removes garbage of those pods. Logs is the folder of their
// logs, empty if these go with the pods themselves. Failed is told of each failure once.
func (s *Stock) Collector(pods Pods, logs string, failed func(reason string, err error)) (*garbage.Collector, error) {
	c, err := garbage.New(garbage.Config{
		Runtime: s.cfg.Runtime, Images: s.cfg.Client, ImagePolicy: s.cfg.Settings.Images, ContainerPolicy: s.cfg.Dead,
		Wanted: pods.Has, Finished: pods.Finished, Mine: pods.Mine, Keep: pods.VolumeImages, Needed: s.LastNeeded, Left: s.Prune,
		Logs: logs, Failed: failed, Log: s.cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("garbage collection: %w", err)
	}
	return c, nil
}
