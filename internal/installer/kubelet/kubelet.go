// Package kubelet reads how the kubelet of this node was started, from its command
// line, its configuration file and the drop-ins to that.
//
// It needs the host's processes to be visible. It changes nothing.
package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/errdefs"
)

// Kubelet is what was found.
type Kubelet struct {
	// PID is the process, and Root where its files are seen from here.
	PID  int
	Root string
	// Endpoint is the CRI socket that it uses: the one that it was told, or its default.
	// It is "" with --container-runtime, as older ones that know that have no default, and
	// where that may be in a file that is not seen.
	Endpoint string
	// Unseen is a file or folder of its configuration that is not seen from here, or "".
	Unseen string
	// Runtime is the flag --container-runtime, which is gone since Kubernetes 1.27,
	// and "" if it was not given.
	Runtime string
	// LogSize and LogFiles say when logs of containers are rotated; defaults are
	// filled in.
	LogSize  string
	LogFiles int
	// RotationOff says that a feature gate of old switches rotation off.
	RotationOff bool
}

// The kubelet's own defaults; that of the endpoint is there from Kubernetes 1.27 on.
const (
	defaultEndpoint = "unix:///run/containerd/containerd.sock"
	defaultLogSize  = "10Mi"
	defaultLogFiles = 5
)

// Find looks through proc, which is normally /proc, and reads files below root.
// Without a kubelet the error is errdefs.ErrNotFound.
func Find(proc, root string) (Kubelet, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return Kubelet{}, fmt.Errorf("look for the kubelet: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		name, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(name)) != "kubelet" {
			continue // or it has ended meanwhile
		}
		line, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		// Its own root has its files also where they are not mounted.
		if own := filepath.Join(proc, e.Name(), "root"); readable(own) {
			root = own
		}
		return read(pid, args(line), root)
	}
	return Kubelet{}, fmt.Errorf("look for the kubelet: no process of that name is seen: %w", errdefs.ErrNotFound)
}

func readable(dir string) bool {
	_, err := os.ReadDir(dir)
	return err == nil
}

func args(line []byte) []string {
	var all []string
	for a := range bytes.SplitSeq(bytes.TrimRight(line, "\x00"), []byte{0}) {
		all = append(all, string(a))
	}
	return all
}

// read takes the flags over the drop-ins, and these over the file, as the kubelet does.
func read(pid int, line []string, root string) (Kubelet, error) {
	k := Kubelet{PID: pid, Root: root}
	flags := flags(line)
	var c config
	for _, source := range []struct {
		path  string
		merge func(string) error
	}{{flags["config"], c.merge}, {flags["config-dir"], c.mergeFolder}} {
		if source.path == "" {
			continue
		}
		err := source.merge(filepath.Join(root, source.path))
		if errors.Is(err, fs.ErrNotExist) {
			k.Unseen = source.path // of a mount namespace that is not ours
		} else if err != nil {
			return k, err
		}
	}
	k.take(c)
	k.Runtime = flags["container-runtime"]
	if v, ok := flags["container-runtime-endpoint"]; ok {
		k.Endpoint = v
	}
	if k.Endpoint == "" && k.Runtime == "" && k.Unseen == "" {
		k.Endpoint = defaultEndpoint
	}
	if v, ok := flags["container-log-max-size"]; ok {
		k.LogSize = v
	}
	if n, err := strconv.Atoi(flags["container-log-max-files"]); err == nil {
		k.LogFiles = n
	}
	if strings.Contains(strings.ReplaceAll(flags["feature-gates"], " ", ""), "CRIContainerLogRotation=false") {
		k.RotationOff = true
	}
	return k, nil
}

// valued are flags that count here and take what comes next, whatever that is.
var valued = []string{"config", "config-dir", "container-runtime", "container-runtime-endpoint", "container-log-max-size", "container-log-max-files", "feature-gates"}

// flags are --name=value and --name value.
func flags(line []string) map[string]string {
	all := map[string]string{}
	for i, a := range line {
		name, ok := strings.CutPrefix(a, "--")
		if !ok {
			continue
		}
		name, value, ok := strings.Cut(name, "=")
		if !ok && i+1 < len(line) && (slices.Contains(valued, name) || !strings.HasPrefix(line[i+1], "-")) {
			value = line[i+1]
		}
		all[name] = value
	}
	return all
}

// config is what counts here of a KubeletConfiguration.
type config struct {
	Endpoint *string         `json:"containerRuntimeEndpoint"`
	LogSize  *string         `json:"containerLogMaxSize"`
	LogFiles *int            `json:"containerLogMaxFiles"`
	Gates    map[string]bool `json:"featureGates"`
}

// merge takes what a file says over what is there: a null takes away, and feature gates
// are added up.
func (c *config) merge(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	if err := yaml.Unmarshal(data, c); err != nil {
		return fmt.Errorf("read the kubelet's configuration %s: %w", path, err)
	}
	return nil
}

// mergeFolder merges all files *.conf of a folder and of those in it, sorted by name.
func (c *config) mergeFolder(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("read the drop-ins of the kubelet's configuration: %w", err)
		case e.IsDir(), filepath.Ext(path) != ".conf":
			return nil
		}
		return c.merge(path)
	})
}

// take fills in what the files say, and defaults.
func (k *Kubelet) take(c config) {
	k.LogSize, k.LogFiles = defaultLogSize, defaultLogFiles
	if c.Endpoint != nil {
		k.Endpoint = *c.Endpoint
	}
	if c.LogSize != nil && *c.LogSize != "" {
		k.LogSize = *c.LogSize
	}
	if c.LogFiles != nil {
		k.LogFiles = *c.LogFiles
	}
	if on, ok := c.Gates["CRIContainerLogRotation"]; ok {
		k.RotationOff = !on
	}
}

// Problems are what of the flags does not fit a CRI runtime at a socket, for
// people.
func (k Kubelet) Problems() []string {
	var all []string
	if k.Runtime != "" && k.Runtime != "remote" {
		all = append(all, fmt.Sprintf("the kubelet has --container-runtime=%s; it takes remote, with --container-runtime-endpoint", k.Runtime))
	}
	switch {
	case k.Endpoint == "" && k.Unseen != "":
		all = append(all, fmt.Sprintf("the kubelet's configuration %s is not seen from here, so that it is not known which socket it uses; mount it here", k.Unseen))
	case k.Endpoint == "":
		all = append(all, "the kubelet is not told a runtime's socket; set containerRuntimeEndpoint, as in unix:///run/containerd/containerd.sock")
	}
	if k.RotationOff {
		all = append(all, "the kubelet does not rotate logs of containers; take CRIContainerLogRotation=false out of its feature gates")
	}
	if size, err := resource.ParseQuantity(k.LogSize); err == nil && size.Sign() < 0 {
		all = append(all, fmt.Sprintf("containerLogMaxSize is %s, with which the kubelet does not rotate logs of containers; set a size, as in %s", k.LogSize, defaultLogSize))
	}
	if k.LogFiles < 2 {
		all = append(all, fmt.Sprintf("containerLogMaxFiles is %d; the kubelet takes 2 or more", k.LogFiles))
	}
	return all
}
