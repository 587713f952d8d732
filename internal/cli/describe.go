package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cli/show"
)

func (a *app) describeCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "describe {KIND [NAME...] | KIND/NAME...}",
		Short: "Tell all about objects that fairlead up keeps: why a pod does not run, for example",
		Long: "Tell all about a pod that fairlead up keeps: how it and its containers are, what keeps it from being ready,\n" +
			"and what has happened to it. Of other kinds it tells what fairlead get has, and their events. Of environment\n" +
			"variables and Secrets names are told, and no values.",
		Example: "  fairlead describe pod web",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			wanted, err := selections(cmd, list, namespace)
			if err != nil {
				return err
			}
			return a.describe(cmd.Context(), wanted)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only of this namespace")
	return cmd
}

func (a *app) describe(ctx context.Context, wanted []selection) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	groups, missing, err := c.find(ctx, wanted)
	if err != nil {
		return err
	}
	whys, err := c.whys(ctx)
	if err != nil {
		return err
	}
	events, err := c.events(ctx)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, g := range groups {
		for _, o := range g.list {
			if text.Len() > 0 {
				_, _ = fmt.Fprintln(&text)
			}
			f := show.Facts{Object: o, Why: whys[o.GetUID()], Events: about(events, g.Name, o), Now: time.Now()}
			if f.Handler, err = c.handler(ctx, o); err != nil {
				return err
			}
			if err := g.Describe(&text, f); err != nil {
				return err
			}
		}
	}
	_, err = io.WriteString(a.out, visible(text.String()))
	return errors.Join(err, missing)
}

// handler is that of a pod's RuntimeClass; empty if there is no such class.
func (c *machineClient) handler(ctx context.Context, o metav1.Object) (string, error) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.RuntimeClassName == nil {
		return "", nil
	}
	k, err := show.Find("runtimeclass")
	if err != nil {
		return "", err
	}
	classes, err := c.objects(ctx, k)
	for _, class := range classes {
		if class.GetName() == *p.Spec.RuntimeClassName {
			return class.(*nodev1.RuntimeClass).Handler, nil
		}
	}
	return "", err
}

// events are all that there are, the oldest first.
func (c *machineClient) events(ctx context.Context) (out []corev1.Event, err error) {
	answer, err := c.do(ctx, http.MethodGet, "/events", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	for lines := json.NewDecoder(answer); ; {
		var e corev1.Event
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		out = append(out, e)
	}
}

// about are the events about an object; those of a pod of that name before it are not.
func about(list []corev1.Event, kind string, o metav1.Object) (out []corev1.Event) {
	for _, e := range list {
		of := e.InvolvedObject
		if of.Kind == kind && of.Namespace == o.GetNamespace() && of.Name == o.GetName() && of.UID == o.GetUID() {
			out = append(out, e)
		}
	}
	return out
}
