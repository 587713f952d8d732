package garbage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/logs/links"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/podspec"
)

// CollectDead removes containers that have ended, sandboxes that do not run, logs of
// pods that are gone, and links to logs that are.
func (c *Collector) CollectDead(ctx context.Context) error {
	return c.collectDead(ctx, c.cfg.Wanted)
}

// DeleteUnusedContainers does as CollectDead, and takes what is left of pods
// that have finished besides, because the disk is needed.
func (c *Collector) DeleteUnusedContainers(ctx context.Context) error {
	return c.collectDead(ctx, func(uid string) bool { return c.cfg.Wanted(uid) && !c.cfg.Finished(uid) })
}

func (c *Collector) collectDead(ctx context.Context, wanted func(string) bool) error {
	c.dead.Lock()
	defer c.dead.Unlock()
	within, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	// Sandboxes first: a container that is made meanwhile keeps its sandbox.
	boxes, err := c.cfg.Runtime.ListPodSandbox(within, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := c.containers(within)
	if err != nil {
		return err
	}
	c.note(containers)
	mine, theirs := c.mine(boxes.GetItems(), containers)
	removed, err := each(ctx, Dead(theirs, c.cfg.ContainerPolicy, time.Now(), wanted), c.removeContainer)
	errs := []error{err}
	containers = slices.DeleteFunc(containers, func(ct *runtimeapi.Container) bool { return slices.Contains(removed, ct) })
	dropped, err := each(ctx, DeadSandboxes(mine, containers, wanted), c.removeSandbox)
	errs = append(errs, err)
	there := map[string]bool{}
	for _, s := range boxes.GetItems() {
		if !slices.Contains(dropped, s) {
			there[s.GetMetadata().GetUid()] = true
		}
	}
	for _, ct := range containers {
		there[ct.GetLabels()[podspec.LabelPodUID]] = true
	}
	// Logs stay as long as their pod is known, also those of one that has finished.
	folders, err := Orphans(c.cfg.Logs, func(uid string) bool { return there[uid] || c.cfg.Wanted(uid) })
	errs = append(errs, err)
	_, err = each(ctx, folders, func(_ context.Context, path string) error {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove logs of a pod that is gone: %w", err)
		}
		return nil
	})
	return errors.Join(append(errs, err, links.Sweep(c.cfg.Logs))...)
}

// mine are the sandboxes that may be removed, and their containers. One whose sandbox
// is not in the list is too new to be garbage.
func (c *Collector) mine(boxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container) {
	if c.cfg.Mine == nil {
		return boxes, containers
	}
	known := map[string]bool{}
	var mine []*runtimeapi.PodSandbox
	for _, s := range boxes {
		if c.cfg.Mine(s) {
			mine = append(mine, s)
			known[s.GetId()] = true
		}
	}
	var theirs []*runtimeapi.Container
	for _, ct := range containers {
		if known[ct.GetPodSandboxId()] {
			theirs = append(theirs, ct)
		}
	}
	return mine, theirs
}

func (c *Collector) containers(ctx context.Context) ([]*runtimeapi.Container, error) {
	got, err := c.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return got.GetContainers(), nil
}

// note marks the images of containers as used now, so that one which was there
// between two passes through images counts, too.
func (c *Collector) note(containers []*runtimeapi.Container) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, ct := range containers {
		for _, name := range namesOf(ct) {
			if i, ok := c.seen[name]; ok {
				i.Used = now
				c.seen[name] = i
			}
		}
	}
}

func (c *Collector) removeContainer(ctx context.Context, ct *runtimeapi.Container) error {
	path := ""
	if s, err := c.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: ct.GetId()}); err == nil {
		path = s.GetStatus().GetLogPath()
	}
	_, err := c.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: ct.GetId()})
	if err = gone(err); err != nil {
		return fmt.Errorf("remove container %s of pod %s: %w", ct.GetId(), ct.GetLabels()[podspec.LabelPodUID], err)
	}
	if c.cfg.Logs == "" || !strings.HasPrefix(path, filepath.Clean(c.cfg.Logs)+"/") {
		return nil
	}
	return rotate.Remove(path)
}

func (c *Collector) removeSandbox(ctx context.Context, s *runtimeapi.PodSandbox) error {
	// What was stopped already is no harm to stop, and what was not has an address.
	_, err := c.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
	if err = gone(err); err == nil {
		_, err = c.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		err = gone(err)
	}
	if err != nil {
		return fmt.Errorf("remove sandbox %s of pod %s/%s: %w", s.GetId(), s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), err)
	}
	return nil
}

// Orphans are the folders below one that belong to pods that are not there.
func Orphans(dir string, there func(uid string) bool) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list logs of pods: %w", err)
	}
	var out []string
	for _, e := range entries {
		uid := e.Name()[strings.LastIndexByte(e.Name(), '_')+1:]
		if e.IsDir() && uid != "" && !there(uid) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}
