package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/machine"
	"fairlead.run/internal/node/manifest"
)

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var p patience
	cmd := &cobra.Command{
		Use:   "apply -f FILE...",
		Short: "Have fairlead up keep the objects of manifests",
		Long: "Check the objects of manifests and write each into a file of its own in the folder of fairlead up, which\n" +
			"takes them up at once. With a fault in one nothing is written. What a file of yours in that folder defines is\n" +
			"left to that file.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.apply(cmd.Context(), files, p) },
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest file, folder, or - for standard input; may be given more than once")
	cmd.Flags().BoolVar(&p.wait, "wait", false, "wait until pods are ready or have completed, and Jobs have completed")
	p.addTimeout(cmd, 0)
	return cmd
}

func (a *app) apply(ctx context.Context, files []string, p patience) error {
	if len(files) == 0 {
		return usageError{errors.New("no manifest is given; use -f FILE, -f FOLDER or -f -")}
	}
	sources, err := manifest.Read(ctx, files, a.in)
	if err != nil {
		return err
	}
	c, err := a.machine()
	if err != nil {
		return err
	}
	var text strings.Builder
	var notes []string
	decoded, err := manifest.DecodeFiles(sources)
	if err != nil {
		return err // which names the file, as the machine cannot
	}
	for i, f := range decoded {
		notes = append(notes, f.Notes()...)
		fmt.Fprintf(&text, "---\n%s\n", sources[i].Data)
	}
	var done []machine.Applied
	if err := c.get(ctx, http.MethodPost, "/objects", []byte(text.String()), &done); err != nil {
		return err
	}
	for _, d := range done {
		a.tellApplied(d)
	}
	for _, n := range notes {
		a.note("%s", n)
	}
	return c.allReady(ctx, p, done)
}

func (a *app) tellApplied(d machine.Applied) {
	_, _ = fmt.Fprintf(a.out, "%s/%s %s\n", strings.ToLower(d.Kind), podName(d.Namespace, d.Name), d.Change)
}

func (a *app) deleteCommand() *cobra.Command {
	var files []string
	var by choice
	var absentOK bool
	p := patience{wait: true}
	cmd := &cobra.Command{
		Use:   "delete {KIND NAME... | KIND/NAME... | KIND -l LABELS | KIND --all | -f FILE...}",
		Short: "Take objects away that were applied",
		Long: "Take objects away that were applied, by kind and name, by labels, or as manifests have them. Their pods end within their\n" +
			"grace period, which is waited for. NAME may be namespace/name.",
		Example: "  fairlead delete pod web\n  fairlead delete deploy/web cm/settings --timeout 1m\n  fairlead delete -f web.yaml --wait=false",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			objects, err := a.toDelete(cmd, list, files, by)
			if err != nil {
				return err
			}
			if len(objects) == 0 && len(list) > 0 && !absentOK {
				return nothingChosen(list)
			}
			return a.deleteAll(cmd.Context(), objects, absentOK, p)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest file, folder, or - for standard input; may be given more than once")
	cmd.Flags().BoolVar(&p.wait, "wait", true, "wait until the pods are gone")
	p.addTimeout(cmd, 0)
	cmd.Flags().BoolVar(&absentOK, "ignore-not-found", false, "take an object that is not there for deleted")
	by.addTo(cmd)
	return cmd
}

func namespaceFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVarP(to, "namespace", "n", "default", "namespace")
}

func (a *app) toDelete(cmd *cobra.Command, list, files []string, by choice) ([]manifest.Single, error) {
	if (len(list) > 0) == (len(files) > 0) {
		return nil, usageError{fmt.Errorf("give a kind and names, or manifests with -f; see %s --help", cmd.CommandPath())}
	}
	var out []manifest.Single
	if len(list) > 0 {
		wanted, err := a.chosen(cmd, list, by)
		for _, o := range wanted {
			out = append(out, o.single())
		}
		return out, err
	}
	if by.selector != "" || by.all {
		return nil, usageError{errors.New("-l and --all choose of a kind, and -f has objects; give one of them")}
	}
	sources, err := manifest.Read(cmd.Context(), files, a.in)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		more, err := manifest.Singles(s)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// deleteAll goes on after what cannot be deleted.
func (a *app) deleteAll(ctx context.Context, objects []manifest.Single, absentOK bool, p patience) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	var errs []error
	pods := map[types.UID]bool{}
	for _, o := range slices.Backward(objects) { // what uses others goes before them
		if o.Custom {
			continue // nobody has kept it
		}
		var done machine.Applied
		if err := c.get(ctx, http.MethodDelete, objectPath(o.Kind, o.Namespace, o.Name), nil, &done); err != nil {
			if !absentOK || !isAbsent(err) {
				errs = append(errs, err)
			}
			continue
		}
		a.tellApplied(done)
		if done.Elsewhere != "" { // which keeps its pods
			errs = append(errs, fmt.Errorf("%s %s stays, as it is also written at %s; delete it there", strings.ToLower(o.Kind), podName(o.Namespace, o.Name), done.Elsewhere))
			continue
		}
		for _, uid := range done.Pods {
			pods[uid] = true
		}
	}
	if p.wait && len(pods) > 0 {
		errs = append(errs, c.gone(ctx, p, pods))
	}
	return errors.Join(errs...)
}

// podsOf asks for pods: those that are named, or all. What is not there is an error.
func (c *machineClient) podsOf(ctx context.Context, namespace string, names []string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.get(ctx, http.MethodGet, "/pods", nil, &list); err != nil {
		return nil, err
	}
	out := []corev1.Pod{}
	found := map[string]bool{}
	for _, p := range list.Items {
		wanted := len(names) == 0
		for _, n := range names {
			if n == p.Name || n == p.Namespace+"/"+p.Name {
				wanted, found[n] = true, true
			}
		}
		if wanted && (namespace == "" || namespace == p.Namespace) {
			out = append(out, p)
		}
	}
	for _, n := range names {
		if !found[n] {
			return nil, fmt.Errorf("fairlead up keeps no pod %s; see: fairlead get pods", n)
		}
	}
	return out, nil
}

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var of, namespace string
	var types []string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to the pods that fairlead up keeps",
		Long:  "Show the last events of the pods that fairlead up keeps, the oldest first. Those that say the same are one,\nwith a count.",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			about := func(o corev1.ObjectReference) bool { return namespace == "" || o.Namespace == namespace }
			if of != "" {
				one, err := selections(cmd, []string{of}, namespace)
				if err != nil {
					return err
				}
				if one[0].name == "" {
					return usageError{fmt.Errorf("--for %q is no KIND/NAME", of)}
				}
				about = one[0].isAbout
			}
			for _, t := range types {
				if !strings.EqualFold(t, corev1.EventTypeNormal) && !strings.EqualFold(t, corev1.EventTypeWarning) {
					return usageError{fmt.Errorf("--types %q is not one of Normal, Warning", t)}
				}
			}
			return a.events(cmd.Context(), follow, func(e *corev1.Event) bool {
				isType := func(t string) bool { return strings.EqualFold(t, e.Type) }
				return about(e.InvolvedObject) && (len(types) == 0 || slices.ContainsFunc(types, isType))
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with those that come")
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "the same as --follow")
	cmd.Flags().StringVar(&of, "for", "", "only those about KIND/NAME")
	cmd.Flags().StringSliceVar(&types, "types", nil, "only those of these types: Normal, Warning")
	anyNamespaceFlags(cmd, &namespace)
	return cmd
}

// anyNamespaceFlags are those of commands that show all namespaces unless one is named.
// kubectl needs to be told, so that people tell it.
func anyNamespaceFlags(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "only of this namespace")
	all := cmd.Flags().BoolP("all-namespaces", "A", false, "of all namespaces, as without -n")
	cmd.PreRun = func(*cobra.Command, []string) {
		if *all {
			*namespace = ""
		}
	}
}

func (a *app) events(ctx context.Context, follow bool, wanted func(*corev1.Event) bool) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	path := "/events"
	if follow {
		path += "?follow=1"
	}
	answer, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	for lines := json.NewDecoder(answer); ; {
		var e corev1.Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !wanted(&e):
			continue
		}
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		_, _ = fmt.Fprintf(a.out, "%s  %-7s  %s %s  %s: %s%s\n", e.LastTimestamp.Local().Format("2006-01-02 15:04:05"), e.Type,
			strings.ToLower(e.InvolvedObject.Kind), podName(e.InvolvedObject.Namespace, e.InvolvedObject.Name), e.Reason, oneLine(strings.ReplaceAll(e.Message, "\n", "; ")), times)
	}
}
