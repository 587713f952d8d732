package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/foreground"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/localnode"
	"fairlead.run/internal/node/manifest"
)

type runFlags struct {
	files      []string
	detach     bool
	timestamps bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run -f FILE...",
		Short: "Run the pods of manifests, and follow their logs",
		Long: "Run the Pods and Deployments of manifests, each on the handler of its RuntimeClass,\n" +
			"and follow their logs. Ctrl-C stops and removes them within their grace period, a\n" +
			"second Ctrl-C at once.\n\n" +
			"The exit code is 0 when all pods have completed, 1 when one failed or could not be\n" +
			"started, 2 for a wrong command line, and 130 when Ctrl-C ended it.",
		Example: "  fairlead run -f examples/runtimeclasses.yaml -f examples/web-native.yaml\n" +
			"  kubectl create deployment web --image=nginx:1.29 --dry-run=client -o yaml | fairlead run -f -",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runPods(cmd.Context(), f) },
	}
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "manifest file, folder, or - for standard input; may be given more than once")
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "leave the pods running; nobody restarts their containers then")
	cmd.Flags().BoolVar(&f.timestamps, "timestamps", false, "show when each line was written")
	return cmd
}

func (a *app) runPods(ctx context.Context, f runFlags) error {
	if len(f.files) == 0 {
		return usageError{errors.New("no manifest is given; use -f FILE, -f FOLDER or -f -")}
	}
	sources, err := manifest.Read(ctx, f.files, a.in)
	if ctx.Err() != nil {
		return errors.Join(errInterrupted, err)
	}
	if err != nil {
		return err
	}
	objects, err := manifest.Decode(sources)
	if err != nil {
		return err
	}
	if len(objects.Pods) == 0 {
		return usageError{errors.New("the manifests hold no Pod and no Deployment with replicas, so there is nothing to run")}
	}
	return a.with(ctx, func(s *session) error { return a.runWith(ctx, s, objects, f) })
}

func (a *app) runWith(ctx context.Context, s *session, objects *manifest.Objects, f runFlags) error {
	set, err := handlers.List(ctx, s.Runtime, handlers.Wanted(objects.Pods, objects.Classes)...)
	if err != nil {
		return err
	}
	plans, err := foreground.Resolve(set, objects.Pods, objects.Classes)
	if err != nil {
		return err
	}
	pods := make([]*corev1.Pod, len(plans))
	for i, p := range plans {
		pods[i] = p.Pod.Pod
	}
	if err := (capacity.Host{Proc: "/proc", Sys: "/sys"}).CheckPages(pods); err != nil {
		return err
	}
	c := newConsole(a, f)
	for _, n := range objects.Notes {
		c.Note(n)
	}
	for _, p := range plans {
		for _, n := range p.Notes() {
			c.Note(p.Pod.Key().String() + ": " + n)
		}
		c.expect(p.Pod.Pod)
	}
	puller := &puller{session: s, display: newDisplay(a.err)}
	r := foreground.New(foreground.Config{
		Endpoint: s.Endpoint, Puller: puller, Objects: objects,
		Node: localnode.Gather(s.cfg.Root), Observer: c, Root: s.cfg.Root, State: s.cfg.State,
	})
	err = r.Start(ctx, plans)
	puller.display.close()
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(errInterrupted, err)
		}
		return err
	}
	if f.detach {
		r.Leave()
		a.statusTable(a.out, r.Statuses())
		c.Note("the pods go on; nobody restarts their containers. Remove them with: fairlead rm" + c.names(plans))
		return nil
	}
	a.statusTable(a.err, r.Statuses())
	c.started()
	return a.watch(ctx, r, c)
}

// watch waits for the end of the pods or a signal, and removes them.
func (a *app) watch(ctx context.Context, r *foreground.Run, c *console) error {
	err := r.Wait(ctx)
	interrupted := ctx.Err() != nil
	c.leaving()
	now := make(chan struct{})
	if interrupted {
		c.Note("stopping the pods within their grace period; press Ctrl-C again to stop them at once")
		stop := onSecondSignal(now)
		defer stop()
	}
	if stopErr := r.Stop(context.WithoutCancel(ctx), now); stopErr != nil {
		return errors.Join(err, stopErr)
	}
	if interrupted {
		c.Note("all pods are stopped and removed")
		return errInterrupted
	}
	return err
}

// onSecondSignal closes now when another signal comes.
func onSecondSignal(now chan struct{}) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			close(now)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// names lists the plans' pods as arguments.
func (c *console) names(plans []foreground.Plan) string {
	text := ""
	for _, p := range plans {
		text += " " + p.Pod.Key().String()
	}
	if len(plans) > 5 {
		return fmt.Sprintf(" NAMESPACE/NAME, for each of the %d", len(plans))
	}
	return text
}
