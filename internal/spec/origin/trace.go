package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fairlead.run/internal/pod"
)

// Reader finds bundles by themselves.
type Reader struct {
	// StateDir is the state directory: bundles are containers/ID in it.
	StateDir string
}

// Traces tells of the bundles of containers and pods that are not known, from
// what annotations say in them. Those that say nothing are left out and named
// in the error, beside the others.
func (r Reader) Traces(_ context.Context, known func(id string) bool) ([]pod.Trace, error) {
	base := filepath.Join(r.StateDir, "containers")
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for bundles without a record: %w", err)
	}
	var out []pod.Trace
	var failed []error
	for _, e := range entries {
		if !pod.IsID(e.Name()) || known(e.Name()) {
			continue
		}
		t, err := readTrace(filepath.Join(base, e.Name(), "config.json"), e.Name())
		if err != nil {
			failed = append(failed, fmt.Errorf("tell whose container %s is: %w", pod.ContainerID(e.Name()).Short(), err))
			continue
		}
		out = append(out, t)
	}
	return out, errors.Join(failed...)
}

func readTrace(path, id string) (pod.Trace, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return pod.Trace{}, err
	}
	var s struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return pod.Trace{}, fmt.Errorf("%s: %w", path, err)
	}
	a := s.Annotations
	t := pod.Trace{
		Pod: pod.ID(a[Sandbox]), Handler: a[Handler], Pause: a[Type] == TypeSandbox,
		Labels: labels(a[SandboxLabels]),
		Metadata: pod.Metadata{
			Name: a[Name], Namespace: a[Namespace], UID: a[UID],
			Attempt: number(a[SandboxAttempt]),
		},
	}
	if !pod.IsID(string(t.Pod)) {
		return pod.Trace{}, fmt.Errorf("%s does not name its pod", path)
	}
	if info, err := os.Stat(path); err == nil {
		t.Made = info.ModTime()
	}
	if !t.Pause {
		t.Container = &pod.ContainerTrace{
			ID: pod.ContainerID(id), Image: a[Image], Labels: labels(a[ContainerLabels]),
			Metadata: pod.ContainerMetadata{Name: a[Container], Attempt: number(a[ContainerAttempt])},
		}
		if ids := a[Volumes]; ids != "" {
			t.Container.Volumes = strings.Split(ids, ",")
		}
	}
	return t, nil
}

// labels are none where they cannot be read: better than no trace.
func labels(text string) map[string]string {
	var out map[string]string
	_ = json.Unmarshal([]byte(text), &out)
	return out
}

// number is zero for what is none: better a wrong attempt than no trace.
func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}
