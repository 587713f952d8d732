package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// versions asks the programs and the daemons what they are.
func (b *bench) versions(ctx context.Context, s *stage) (map[string]string, error) {
	out := map[string]string{}
	var failed []error
	for kind, sys := range s.systems {
		r, err := sys.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
		if err != nil {
			failed = append(failed, fmt.Errorf("ask %s for its version: %w", kind, err))
			continue
		}
		out[r.RuntimeName] = r.RuntimeVersion
	}
	for _, name := range []string{"runc", "crun"} {
		text, err := exec.CommandContext(ctx, b.cfg.Programs[name], "--version").Output()
		if err != nil {
			failed = append(failed, fmt.Errorf("ask %s for its version: %w", name, err))
			continue
		}
		out[name] = strings.TrimPrefix(firstLine(string(text)), name+" version ")
	}
	// The plugins say what they can do, not what they are.
	if v, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", "containernetworking-plugins").Output(); err == nil {
		out["CNI plugins"] = "Debian " + string(v)
	}
	return out, errors.Join(failed...)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
