package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/inventory"
	"fairlead.run/internal/node/logs"
)

type logFlags struct {
	follow     bool
	tail       int
	since      time.Duration
	timestamps bool
	container  string
}

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs POD",
		Short: "Show the output of a pod's containers",
		Long: "Show the output of a pod's containers. POD is a name, namespace/name, or the start of an id.\n" +
			"With several containers and without -c all of them are shown, with their names in front.",
		Args: args("POD"),
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.with(cmd.Context(), func(s *session) error { return a.logs(cmd.Context(), s, list[0], f) })
		},
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on until the containers end")
	cmd.Flags().IntVar(&f.tail, "tail", -1, "lines to show from the end; -1 shows all")
	cmd.Flags().DurationVar(&f.since, "since", 0, "show what is not older than this, such as 5m")
	cmd.Flags().BoolVar(&f.timestamps, "timestamps", false, "show when each line was written")
	cmd.Flags().StringVarP(&f.container, "container", "c", "", "container to show")
	return cmd
}

func (a *app) logs(ctx context.Context, s *session, ref string, f logFlags) error {
	pods, err := inventory.List(ctx, s.Runtime)
	if err != nil {
		return err
	}
	p, err := inventory.Find(pods, ref)
	if err != nil {
		return err
	}
	chosen := p.Containers
	if f.container != "" || len(chosen) == 0 {
		c, err := p.Find(f.container)
		if err != nil {
			return err
		}
		chosen = []inventory.Container{*c}
	}
	w := &logWriter{out: a.out, err: a.err, stamps: f.timestamps}
	for _, c := range chosen {
		if len(chosen) > 1 {
			w.width = max(w.width, len(c.Name))
		}
	}
	if !f.follow { // one after the other keeps them readable
		for _, c := range chosen {
			if err := showLog(ctx, s, c, f, w); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make([]error, len(chosen))
	var wg sync.WaitGroup
	for i, c := range chosen {
		wg.Go(func() { errs[i] = showLog(ctx, s, c, f, w) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return errInterrupted
	}
	return errors.Join(errs...)
}

func showLog(ctx context.Context, s *session, c inventory.Container, f logFlags, w *logWriter) error {
	path, err := inventory.LogPath(ctx, s.Runtime, &c)
	if err != nil {
		return err
	}
	o := logs.Options{Tail: f.tail, Follow: f.follow}
	if f.since > 0 {
		o.Since = time.Now().Add(-f.since)
	}
	if f.follow {
		watch, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan struct{})
		o.Ended = ended
		go func() {
			defer close(ended)
			inventory.AwaitExit(watch, s.Runtime, &c)
		}()
	}
	return logs.Read(ctx, path, o, func(l logs.Line) error { return w.line(c.Name, l) })
}

// logWriter writes lines of several containers, each stream to its own.
type logWriter struct {
	mu       sync.Mutex
	out, err io.Writer
	width    int // of names; 0 shows none
	stamps   bool
}

func (w *logWriter) line(name string, l logs.Line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	to := w.out
	if l.Stream == "stderr" {
		to = w.err
	}
	text := ""
	if w.width > 0 {
		text = fmt.Sprintf("%-*s | ", w.width, name)
	}
	if w.stamps {
		text += l.Time.Format(time.RFC3339Nano) + " "
	}
	_, err := fmt.Fprintf(to, "%s%s\n", text, l.Text)
	return err
}
