package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.run/internal/classes"
	"fairlead.run/internal/errdefs"
)

func (a *app) classesExplainCommand() *cobra.Command {
	w := &where{}
	var namespace string
	cmd := &cobra.Command{
		Use:   "explain [pod/|class/]NAME",
		Short: "Say why a pod or a class finds its nodes, or does not",
		Long: "Say why a pod or a RuntimeClass finds its nodes, or does not: the class and what chose it, what\n" +
			"admission injects or refuses, and what speaks against each node. A name alone is a pod's, or else a\n" +
			"class's. The exit code is 1 if there is no node for it.",
		Example: "fairlead classes explain -n ci pod/build-7\n" +
			"fairlead classes explain class/gvisor -o json",
		Args: args("NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			s, set, err := a.readClasses(cmd.Context(), w)
			if err != nil {
				return err
			}
			s.AddManifests(set)
			return a.explainClasses(s, namespace, names[0])
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "the `NAMESPACE` of a pod")
	w.flags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) explainClasses(s *classes.Snapshot, namespace, name string) error {
	kind, of, named := strings.Cut(name, "/")
	switch {
	case !named:
		err := a.explainPod(s, namespace, name)
		if !errors.Is(err, errdefs.ErrNotFound) {
			return err
		}
		if err := a.explainClass(s, name); !errors.Is(err, errdefs.ErrNotFound) {
			return err
		}
		return fmt.Errorf("there is neither a pod %s/%s nor a RuntimeClass %s: %w", namespace, name, name, errdefs.ErrNotFound)
	case kind == "pod":
		return a.explainPod(s, namespace, of)
	case kind == "class" || kind == "runtimeclass":
		return a.explainClass(s, of)
	}
	return usageError{fmt.Errorf("%s: write pod/NAME or class/NAME", name)}
}

func (a *app) explainPod(s *classes.Snapshot, namespace, name string) error {
	p, err := classes.ExplainPod(s, namespace, name)
	if err != nil {
		return err
	}
	if a.output != "table" {
		err = a.print(p, nil)
	} else {
		err = a.writeLines(podText(p))
	}
	if err == nil && !p.Schedulable {
		return errUnschedulable
	}
	return err
}

func (a *app) explainClass(s *classes.Snapshot, name string) error {
	c, err := classes.ExplainClass(s, name)
	if err != nil {
		return err
	}
	if a.output != "table" {
		err = a.print(c, nil)
	} else {
		err = a.writeLines(classText(c))
	}
	if err == nil && (c.Matching == 0 || len(c.Faults) > 0) {
		return errUnschedulable
	}
	return err
}

func (a *app) writeLines(lines []string) error {
	_, err := fmt.Fprintln(a.out, visible(strings.Join(lines, "\n")))
	return err
}

func podText(p *classes.Pod) []string {
	lines := []string{fmt.Sprintf("Pod %s/%s: %s", p.Namespace, p.Name, p.Sentence)}
	if p.Class == "" {
		lines = append(lines, "  class: none, so it runs on each node's default handler")
	} else {
		text := "  class: " + p.Class
		if p.Handler != "" {
			text += ", handler " + p.Handler
		}
		if in := p.Injected; in != nil && in.ChosenBy != "" {
			text += ", chosen by " + in.ChosenBy
			if in.Because != "" {
				text += ": " + in.Because
			}
		}
		lines = append(lines, text)
	}
	if in := p.Injected; in != nil {
		for name, quantity := range in.Overhead {
			lines = append(lines, fmt.Sprintf("  injected: overhead %s=%s", name, quantity))
		}
		for k, v := range in.NodeSelector {
			lines = append(lines, fmt.Sprintf("  injected: nodeSelector %s=%s", k, v))
		}
		if n := len(in.Tolerations); n > 0 {
			lines = append(lines, fmt.Sprintf("  injected: %d tolerations", n))
		}
	}
	if len(p.Policies) > 0 {
		lines = append(lines, "  policies: "+strings.Join(p.Policies, ", "))
	}
	for _, w := range p.Warnings {
		lines = append(lines, "  warning: "+w)
	}
	return append(lines, nodeLines(p.Nodes)...)
}

// mostNodes bounds how many nodes of a group are named.
const mostNodes = 5

func nodeLines(groups []classes.Node) []string {
	var lines []string
	for _, g := range groups {
		names := g.Names
		more := ""
		if len(names) > mostNodes {
			more = fmt.Sprintf(" and %d more", len(names)-mostNodes)
			names = names[:mostNodes]
		}
		why := "matches"
		if len(g.Why) > 0 {
			why = strings.Join(g.Why, "; ")
		} else if len(g.Names) > 1 {
			why = "match"
		}
		lines = append(lines, fmt.Sprintf("  %s%s: %s", strings.Join(names, ", "), more, why))
	}
	return lines
}

func classText(c *classes.ClassReport) []string {
	lines := []string{
		fmt.Sprintf("RuntimeClass %s: %s", c.Name, c.Sentence),
		fmt.Sprintf("  handler %s, isolation %s, pods %d", c.Handler, c.Isolation, c.Pods),
	}
	if c.Default {
		lines = append(lines, "  it is the cluster's default")
	}
	if len(c.Overhead) > 0 {
		lines = append(lines, "  overhead "+overheadText(c.Overhead))
	}
	for _, f := range c.Faults {
		lines = append(lines, "  fault: "+f)
	}
	for _, p := range c.Policies {
		lines = append(lines, "  policy "+p)
	}
	if len(c.Users) > 0 {
		lines = append(lines, "  used in "+strings.Join(c.Users, ", "))
	}
	for _, f := range c.Features {
		lines = append(lines, fmt.Sprintf("  %s: %s (%s)", f.Name, f.Support, f.Why))
	}
	return append(lines, nodeLines(c.Groups)...)
}
