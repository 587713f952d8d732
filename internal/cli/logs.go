package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"fairlead.run/internal/cli/pick"
	"fairlead.run/internal/node/inventory"
	"fairlead.run/internal/node/logs"
)

type logFlags struct {
	target
	selector   string
	follow     bool
	tail       int
	since      time.Duration
	sinceTime  string
	timestamps bool
	container  string
	all        bool
	previous   bool
	prefix     bool
	named      bool // --prefix was given, whichever way
}

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs {POD | TYPE/NAME | -l SELECTOR}",
		Short: "Show the output of a pod's containers",
		Long: "Show the output of a pod's containers, or of all pods with labels that fit. With several containers and without\n" +
			"-c all of them are shown, with their names in front.\n\n" + targetHelp,
		Example: "  fairlead logs web -c main --since 5m\n  fairlead logs job/once --previous\n  fairlead logs -l app=web -f --prefix",
		Args: func(cmd *cobra.Command, list []string) error {
			if f.selector != "" {
				return args()(cmd, list)
			}
			return args("POD")(cmd, list)
		},
		RunE: func(cmd *cobra.Command, list []string) error {
			f.named = cmd.Flags().Changed("prefix")
			if f.selector != "" && !cmd.Flags().Changed("tail") {
				f.tail = selectedTail
			}
			o, err := f.options(time.Now())
			if err != nil {
				return err
			}
			if len(list) > 0 {
				f.ref = list[0]
			}
			return a.with(cmd.Context(), func(s *session) error { return a.logs(cmd.Context(), s, &f, o) })
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on until the containers end")
	flags.IntVar(&f.tail, "tail", -1, fmt.Sprintf("lines to show from the end of each log; -1 shows all. With -l it is %d if nothing is said", selectedTail))
	flags.StringVarP(&f.selector, "selector", "l", "", "show the pods whose labels fit, such as app=web,tier!=back")
	f.add(cmd)
	flags.DurationVar(&f.since, "since", 0, "show what is not older than this, such as 5m")
	flags.StringVar(&f.sinceTime, "since-time", "", "show what is not older than this time, such as 2026-01-02T15:04:05Z")
	flags.BoolVar(&f.timestamps, "timestamps", false, "show when each line was written")
	flags.StringVarP(&f.container, "container", "c", "", "container to show")
	flags.BoolVar(&f.all, "all-containers", false, "show all containers, which is so without -c")
	flags.BoolVarP(&f.previous, "previous", "p", false, "show what was written before the last restart")
	flags.BoolVar(&f.prefix, "prefix", false, "put pod and container in front of each line; --prefix=false puts nothing there")
	return cmd
}

// selectedTail is how much is shown of each log of pods that were not named.
const selectedTail = 10

// options are what is read of each log.
func (f *logFlags) options(now time.Time) (logs.Options, error) {
	// Beginnings that were rotated away belong to the log.
	o := logs.Options{Tail: f.tail, Follow: f.follow && !f.previous, Rotated: true}
	switch {
	case f.all && f.container != "":
		return o, usageError{errors.New("--all-containers and -c do not go together")}
	case f.tail < -1:
		return o, usageError{fmt.Errorf("--tail %d is no number of lines", f.tail)}
	case f.since < 0:
		return o, usageError{fmt.Errorf("--since %s is in the future", f.since)}
	case f.since > 0 && f.sinceTime != "":
		return o, usageError{errors.New("--since and --since-time do not go together")}
	case f.since > 0:
		o.Since = now.Add(-f.since)
	case f.sinceTime != "":
		at, err := time.Parse(time.RFC3339Nano, f.sinceTime)
		if err != nil {
			return o, usageError{fmt.Errorf("--since-time %q is no time in the form of RFC 3339, such as %s", f.sinceTime, now.UTC().Format(time.RFC3339))}
		}
		o.Since = at
	}
	return o, nil
}

// outlet is a log that is shown.
type outlet struct {
	pod *inventory.Pod
	inventory.Container
	before string // what stands in front of its lines
}

func (a *app) logs(ctx context.Context, s *session, f *logFlags, o logs.Options) error {
	list, err := a.outlets(ctx, s, f)
	if err != nil {
		return err
	}
	f.name(list)
	w := &logWriter{out: a.out, err: a.err, stamps: f.timestamps}
	if !o.Follow { // one after the other keeps them readable
		for _, l := range list {
			if err := showLog(ctx, s, l, o, w); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, l := range list {
		wg.Go(func() { errs[i] = showLog(ctx, s, l, o, w) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return errInterrupted
	}
	return errors.Join(errs...)
}

// outlets finds what is to be shown. What pods lack that nobody has named is told, as long
// as others have it.
func (a *app) outlets(ctx context.Context, s *session, f *logFlags) (out []outlet, err error) {
	var pods []*inventory.Pod
	if f.selector != "" {
		pods, err = podsWith(ctx, s, f.namespace, f.selector)
	} else {
		pods = make([]*inventory.Pod, 1)
		pods[0], err = a.podOf(ctx, s, f.target, pick.Logs)
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, p := range pods {
		chosen, err := choose(ctx, s, p, f)
		if err != nil {
			errs = append(errs, a.unstarted(ctx, target{ref: p.Namespace + "/" + p.Name}, f.container, err))
		}
		for _, c := range chosen {
			out = append(out, outlet{pod: p, Container: c})
		}
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	for _, err := range errs {
		a.note("%s", readable(err))
	}
	return out, nil
}

// choose picks the containers whose logs are shown. Of those that were not named and were
// not restarted there is nothing previous to show.
func choose(ctx context.Context, s *session, p *inventory.Pod, f *logFlags) ([]inventory.Container, error) {
	chosen := p.Containers
	if f.container != "" || len(chosen) == 0 {
		c, err := p.Find(f.container)
		if err != nil {
			return nil, err
		}
		chosen = []inventory.Container{*c}
	}
	if !f.previous {
		return chosen, nil
	}
	var out []inventory.Container
	var errs []error
	for _, c := range chosen {
		before, err := inventory.Previous(ctx, s.Runtime, p, &c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *before)
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, errors.Join(errs...)
}

// name says what stands in front of lines: nothing for a single log, unless that is asked
// for.
func (f *logFlags) name(list []outlet) {
	width, pods := 0, map[string]bool{}
	short := func(l outlet) string {
		if len(pods) > 1 {
			return l.pod.ShortName() + " " + l.Name
		}
		return l.Name
	}
	for _, l := range list {
		pods[l.pod.ID] = true
	}
	for _, l := range list {
		width = max(width, len(short(l)))
	}
	for i, l := range list {
		switch {
		case f.prefix:
			list[i].before = fmt.Sprintf("[pod/%s/%s] ", l.pod.Name, l.Name)
		case len(list) > 1 && !f.named:
			list[i].before = fmt.Sprintf("%-*s | ", width, short(l))
		}
	}
}

func showLog(ctx context.Context, s *session, of outlet, o logs.Options, w *logWriter) error {
	path, err := inventory.LogPath(ctx, s.Runtime, &of.Container)
	if err != nil {
		return err
	}
	if o.Follow {
		watch, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan struct{})
		o.Ended = ended
		go func() {
			defer close(ended)
			inventory.AwaitExit(watch, s.Runtime, &of.Container)
		}()
	}
	return logs.Read(ctx, path, o, func(l logs.Line) error { return w.line(of.before, l) })
}

// logWriter writes lines of several containers, each stream to its own.
type logWriter struct {
	mu       sync.Mutex
	out, err io.Writer
	stamps   bool
}

func (w *logWriter) line(before string, l logs.Line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	to := w.out
	if l.Stream == "stderr" {
		to = w.err
	}
	text := before
	if w.stamps {
		text += l.Time.Format(time.RFC3339Nano) + " "
	}
	_, err := fmt.Fprintf(to, "%s%s\n", text, l.Text)
	return err
}

// unstarted is why fairlead up has not started a container yet, or any container where
// none is named; the runtime knows nothing of such ones. Else it is err.
func (a *app) unstarted(ctx context.Context, t target, container string, err error) error {
	c, failed := a.machine()
	if failed != nil || a.endpoint != "" {
		return err
	}
	pods, failed := c.podsOf(ctx, t.namespace, []string{t.ref})
	if failed != nil || len(pods) != 1 {
		return err
	}
	p := &pods[0]
	name := podName(p.Namespace, p.Name)
	if p.Status.Reason != "" {
		return fmt.Errorf("pod %s was not started: %s: %s", name, p.Status.Reason, p.Status.Message)
	}
	for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := st.State.Waiting
		if w != nil && st.ContainerID == "" && (container == "" || st.Name == container) {
			return fmt.Errorf("container %s of pod %s was not started yet: %s", st.Name, name, strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
		}
	}
	return err
}
