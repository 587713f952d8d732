package installer

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/process"
)

// checks runs the payloads' own checks on the node, from the folders there.
func (t *turn) checks(ctx context.Context) error {
	for _, in := range t.all {
		for _, c := range in.job.payload.Checks {
			if err := t.check(ctx, in.job, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *turn) check(ctx context.Context, j *job, c payload.Check) error {
	limit := 30 * time.Second
	if c.TimeoutSeconds > 0 {
		limit = time.Duration(c.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var args []string
	for _, a := range c.Command[1:] {
		args = append(args, j.fill(a))
	}
	cmd := process.Command(ctx, t.root(), filepath.Join(j.release.Dir, c.Command[0]), args...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	said := strings.TrimSpace(string(out))
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return fault.New(payload.CheckFailed, "check %s of %s %s, %s: %w: %s", c.Name, j.payload.Type, j.payload.Version, strings.Join(c.Command, " "), err, said[:min(len(said), 500)])
}
