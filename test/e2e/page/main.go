// Command page writes docs/conformance.md from what the specs did on nodes, each of
// which has a folder of its name:
//
//	page -causes test/e2e/causes.json -kept docs/conformance.json -page docs/conformance.md bin/e2e/fairlead/specs.json bin/e2e/containerd/specs.json
//
// What became of them is kept beside the page: the nodes that are named take the
// place of the same ones before, and the others stay. Every spec that failed needs a
// cause, written by somebody who looked into it. One that skips itself says why.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/test/e2e/results"
)

func main() {
	causes := flag.String("causes", "test/e2e/causes.json", "file with the cause of each spec that has not passed")
	note := flag.String("note", "", "what a reader has to know of the lists that are named now")
	page := flag.String("page", "docs/conformance.md", "the page to write")
	kept := flag.String("kept", "docs/conformance.json", "what the page is made from, to read and to write")
	flag.Parse()
	if err := run(*causes, paths{*page, *kept}, *note, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

type paths struct{ page, kept string }

func run(causesFile string, to paths, note string, files []string) error {
	var why map[string]causes
	if err := readJSON(causesFile, &why); err != nil {
		return err
	}
	all, err := readKept(to.kept)
	if err != nil {
		return err
	}
	for _, f := range files {
		l, err := results.Load(f)
		if err != nil {
			return err
		}
		name := filepath.Base(filepath.Dir(f))
		if title(name) == "" {
			return fmt.Errorf("%s: the page has no node %s", f, name)
		}
		all[name] = kept{note, l}
	}
	text, err := render(all, why)
	if err != nil {
		return err
	}
	if err := writeKept(to.kept, all); err != nil {
		return err
	}
	return os.WriteFile(to.page, []byte(text), 0o644)
}

// nodes are those that the page knows, by the names of their folders, in its order.
var nodes = []struct{ name, title string }{
	{"fairlead", "Fairlead"},
	{"fairlead-v2", "Fairlead, cgroup v2"},
	{"fairlead-v2-systemd", "Fairlead, cgroup v2 by systemd"},
	{"fairlead-node", "fairlead node"},
	{"fairlead-node-v2", "fairlead node, cgroup v2"},
	{"fairlead-node-v2-systemd", "fairlead node, cgroup v2 by systemd"},
	{"containerd", "containerd 2.4.2"},
	{"containerd-v2", "containerd 2.4.2, cgroup v2"},
	{"containerd-v2-systemd", "containerd 2.4.2, cgroup v2 by systemd"},
	{"containerd-node", "fairlead node on containerd 2.4.2"},
	{"containerd-node-v2", "fairlead node on containerd 2.4.2, cgroup v2"},
	{"containerd-node-v2-systemd", "fairlead node on containerd 2.4.2, cgroup v2 by systemd"},
	{"crio", "CRI-O 1.36.3"},
	{"crio-node", "fairlead node on CRI-O 1.36.3"},
}

func title(name string) string {
	for _, n := range nodes {
		if n.name == name {
			return n.title
		}
	}
	return ""
}

const head = `# Conformance

What became of upstream's specs on a real node: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
kubelet %s, with Fairlead, containerd or CRI-O as the runtime, runc, cgroup v1 if nothing else is said, no cluster DNS and no kube-proxy. Where it says
fairlead node, that is in the kubelet's place, with Fairlead as the runtime if no other is named.
With cgroup v2 the node is a virtual machine with Debian's kernel and an emulated processor, which is ten times slower, and all else of the cluster is
beside it. The images are stand-ins made on the spot, of busybox, bash, agnhost and small programs.
[CONTRIBUTING.md](../CONTRIBUTING.md) says how to run it; this page is made by ` + "`make conformance`" + ` and not edited. A spec that has not run, or
not to its end, is not here.

`

func render(all map[string]kept, why map[string]causes) (string, error) {
	var there []string
	for _, n := range nodes {
		if _, ok := all[n.name]; ok {
			there = append(there, n.name)
		}
	}
	if len(there) == 0 {
		return "", fmt.Errorf("there are no results; \"make e2e-full\" makes some")
	}
	var b strings.Builder
	fmt.Fprintf(&b, head, results.Kubernetes)
	for _, note := range notes(all, there) {
		b.WriteString(note + "\n\n")
	}
	b.WriteString("| | ran | passed | skipped themselves | failed |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range there {
		l := all[name].Specs
		n := l.Count()
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", title(name), len(l), n[results.Passed], n[results.Skipped], n[results.Failed])
	}
	b.WriteString("\n## Not passed\n\n| spec |")
	for _, name := range there {
		b.WriteString(" " + title(name) + " |")
	}
	b.WriteString(" cause |\n| --- | --- |" + strings.Repeat(" --- |", len(there)) + "\n")
	passed := map[string][]string{} // by where they ran
	var unexplained, needless []string
	for _, spec := range specs(all) {
		states, where, told := judge(all, there, spec)
		cause, without, extra := why[spec].of(all, there, spec)
		unexplained, needless = append(unexplained, without...), append(needless, extra...)
		if states == nil {
			passed[where] = append(passed[where], spec)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", escape(spec), strings.Join(states, " | "), escape(cmp.Or(cause, told)))
	}
	if len(unexplained) > 0 {
		return "", fmt.Errorf("these have not passed, and no cause is given for them:\n%s", strings.Join(unexplained, "\n"))
	}
	if len(needless) > 0 {
		return "", fmt.Errorf("a cause is given for these, and there is nothing to explain; take it away:\n%s", strings.Join(needless, "\n"))
	}
	sections(&b, passed)
	return b.String(), nil
}

// judge is what became of a spec: its state on each node, and why it skips itself;
// or without states, as it has passed wherever it ran, where that was.
func judge(all map[string]kept, there []string, spec string) (states []string, where, why string) {
	var ran, not []string
	good, failed := true, false
	for _, name := range there {
		s := all[name].Specs.State(spec)
		states = append(states, string(s))
		if s == results.NotRun {
			not = append(not, title(name))
			continue
		}
		if s == results.Skipped {
			why = all[name].Specs.Why(spec)
		}
		failed = failed || s == results.Failed
		good = good && s == results.Passed
		ran = append(ran, title(name))
	}
	switch {
	case failed: // what a spec says as it fails is not a cause
		return states, "", ""
	case !good:
		return states, "", why
	case len(not) == 0:
		return nil, "Passed on all of them", ""
	}
	return nil, "Passed on " + strings.Join(ran, "; ") + " (not run on " + strings.Join(not, "; ") + ")", ""
}

// sections are the specs that passed, where most did first.
func sections(b *strings.Builder, passed map[string][]string) {
	var titles []string
	for t := range passed {
		titles = append(titles, t)
	}
	slices.Sort(titles)
	slices.SortStableFunc(titles, func(x, y string) int { return len(passed[y]) - len(passed[x]) })
	for _, t := range titles {
		fmt.Fprintf(b, "\n## %s\n\n", t)
		for _, spec := range passed[t] {
			fmt.Fprintf(b, "* %s\n", escape(spec))
		}
	}
}

// notes are those of the nodes, each once.
func notes(all map[string]kept, there []string) []string {
	var out []string
	for _, name := range there {
		if note := all[name].Note; note != "" && !slices.Contains(out, note) {
			out = append(out, note)
		}
	}
	return out
}

// specs are the names of all.
func specs(all map[string]kept) []string {
	var out []string
	for _, k := range all {
		for _, s := range k.Specs {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// escape keeps Markdown from reading a name as a link or as columns.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "[", `\[`, "]", `\]`, "<", "&lt;", "\n", " ").Replace(s)
}
