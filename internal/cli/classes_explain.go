package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/internal/classes"
	"fairlead.run/internal/errdefs"
)

func (a *app) classesExplainCommand() *cobra.Command {
	w := &where{}
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
			kind, name, err := subject(names[0])
			if err != nil {
				return err
			}
			if kind != aClass {
				w.name = name
			}
			s, err := a.readManifests(cmd.Context(), w)
			if err != nil {
				return err
			}
			switch kind {
			case aPod:
				return a.explainPod(s, w.namespace, name)
			case aClass:
				return a.explainClass(s, name)
			}
			return a.explainAny(s, w.namespace, name)
		},
	}
	cmd.Flags().StringVarP(&w.namespace, "namespace", "n", "default", "the `NAMESPACE` of a pod")
	w.flags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// What is explained; neither is to be found out.
const (
	aPod   = "pod"
	aClass = "class"
)

// subject reads KIND/NAME, with the kinds as kubectl takes and writes them.
func subject(arg string) (kind, name string, err error) {
	kind, name, named := strings.Cut(arg, "/")
	if !named {
		kind, name = "", arg
	}
	switch kind {
	case "pod", "pods", "po":
		kind = aPod
	case "class", "classes", "runtimeclass", "runtimeclasses", "runtimeclass.node.k8s.io":
		kind = aClass
	default:
		if named {
			return "", "", usageError{fmt.Errorf("%s: write pod/NAME or class/NAME", arg)}
		}
	}
	if name == "" || strings.Contains(name, "/") {
		return "", "", usageError{fmt.Errorf("%q: write pod/NAME or class/NAME, and the namespace with -n", arg)}
	}
	return kind, name, nil
}

// explainAny explains the pod of a name, or else the class.
func (a *app) explainAny(s *classes.Snapshot, namespace, name string) error {
	isClass := slices.ContainsFunc(s.Classes, func(c *nodev1.RuntimeClass) bool { return c.Name == name })
	err := a.explainPod(s, namespace, name)
	if !errors.Is(err, errdefs.ErrNotFound) {
		if isClass {
			a.tell("there is a RuntimeClass of that name, too: class/%s", name)
		}
		return err
	}
	if isClass {
		return a.explainClass(s, name)
	}
	_, missing := classes.ExplainClass(s, name)
	return fmt.Errorf("%s; %w", strings.TrimSuffix(err.Error(), ": "+errdefs.ErrNotFound.Error()), missing)
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
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	_, err := fmt.Fprintln(a.out, strings.Join(lines, "\n"))
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
		for _, name := range slices.Sorted(maps.Keys(in.Overhead)) {
			lines = append(lines, fmt.Sprintf("  injected: overhead %s=%s", name, in.Overhead[name]))
		}
		for _, key := range slices.Sorted(maps.Keys(in.NodeSelector)) {
			lines = append(lines, fmt.Sprintf("  injected: nodeSelector %s=%s", key, in.NodeSelector[key]))
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

// How many nodes of a group are named, and how many groups: each node can have
// reasons of its own.
const (
	mostNodes  = 5
	mostGroups = 20
)

func nodeLines(groups []classes.Node) []string {
	var lines []string
	for i, g := range groups {
		if i == mostGroups {
			rest := 0
			for _, g := range groups[i:] {
				rest += len(g.Names)
			}
			return append(lines, fmt.Sprintf("  %d nodes more, with other reasons; -o json has all", rest))
		}
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
	pods := fmt.Sprint(c.Pods)
	if slices.Contains(c.Unknown, classes.Pods) {
		pods = "unknown"
	}
	lines := []string{
		fmt.Sprintf("RuntimeClass %s: %s", c.Name, c.Sentence),
		fmt.Sprintf("  handler %s, isolation %s, pods %s", c.Handler, c.Isolation, pods),
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
