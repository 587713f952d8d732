package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source/changeset"
)

// restartable are the kinds whose pods can be made anew.
var restartable = []string{"DaemonSet", "Deployment", "StatefulSet"}

// Restart has the pods of a workload that was applied made anew. It comes back when the
// agent knows of them.
func (m *Machine) Restart(ctx context.Context, kind string, k manifest.Key) (Applied, error) {
	if m.cfg.Manifests.Folder == "" {
		return Applied{}, errNoFolder
	}
	if !slices.Contains(restartable, kind) {
		return Applied{}, fmt.Errorf("a %s cannot be restarted; these can: %s: %w", kind, strings.Join(restartable, ", "), errdefs.ErrInvalidArgument)
	}
	file := m.applied(kind, k)
	switch where := m.read().Where(kind, k); { // which only has names of objects
	case where == "":
		return Applied{}, fmt.Errorf("there is no %s %s: %w", kind, k, errdefs.ErrNotFound)
	case !strings.HasPrefix(where, file+":"):
		return Applied{}, fmt.Errorf("%s %s is written at %s; to restart its pods change an annotation of its template there: %w", kind, k, where, errdefs.ErrPrecondition)
	}
	text, err := m.stamp(ctx, file)
	if errors.Is(err, os.ErrNotExist) { // it was deleted a moment ago
		return Applied{}, fmt.Errorf("there is no %s %s: %w", kind, k, errdefs.ErrNotFound)
	}
	if err != nil {
		return Applied{}, fmt.Errorf("restart %s %s: %w", kind, k, err)
	}
	m.settle(ctx, []manifest.Single{{Kind: kind, Key: k, Text: text}})
	return Applied{Kind: kind, Namespace: k.Namespace, Name: k.Name, Change: "restarted", File: file}, nil
}

// stamp writes into the file of a workload when it was restarted.
func (m *Machine) stamp(ctx context.Context, file string) ([]byte, error) {
	folder, err := m.cfg.Manifests.Changes.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer folder.Release()
	text, err := os.ReadFile(file)
	if err == nil {
		text, err = manifest.Restarted(text, time.Now().Format(time.RFC3339Nano))
	}
	if err != nil {
		return nil, err
	}
	return text, folder.Change(changeset.Change{Name: filepath.Base(file), Data: text})
}

// stillRestarted are objects that are applied, with the times of restarts that their files
// have: to apply a manifest that has not changed makes no pods anew.
func (m *Machine) stillRestarted(objects []manifest.Single) error {
	for i, o := range objects {
		if !slices.Contains(restartable, o.Kind) || manifest.RestartedAt(o.Text) != "" {
			continue
		}
		old, err := os.ReadFile(m.applied(o.Kind, o.Key))
		if err != nil {
			continue // there is none, or writing it says what is wrong
		}
		if at := manifest.RestartedAt(old); at != "" {
			if objects[i].Text, err = manifest.Restarted(o.Text, at); err != nil {
				return fmt.Errorf("%s %s: %w", o.Kind, o.Key, err)
			}
		}
	}
	return nil
}
