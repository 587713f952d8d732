// Command page writes docs/conformance.md from what the specs did on Fairlead
// and on containerd:
//
//	page -causes test/e2e/causes.json -page docs/conformance.md bin/e2e/fairlead/specs.json bin/e2e/containerd/specs.json
//
// Every spec that failed needs a cause, written by somebody who looked into it.
// One that skips itself says why. The second list may be left out.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"fairlead.run/test/e2e/results"
)

func main() {
	causes := flag.String("causes", "test/e2e/causes.json", "file with the cause of each spec that has not passed")
	note := flag.String("note", "", "what a reader has to know of these lists")
	page := flag.String("page", "docs/conformance.md", "the page to write")
	flag.Parse()
	if err := run(*causes, *page, *note, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(causesFile, page, note string, lists []string) error {
	if len(lists) < 1 || len(lists) > 2 {
		return fmt.Errorf("it takes one or two lists of results, not %d", len(lists))
	}
	data, err := os.ReadFile(causesFile)
	if err != nil {
		return err
	}
	var causes map[string]string
	if err := json.Unmarshal(data, &causes); err != nil {
		return fmt.Errorf("read %s: %w", causesFile, err)
	}
	ours, err := results.Load(lists[0])
	if err != nil {
		return err
	}
	var theirs results.List
	if len(lists) == 2 {
		if theirs, err = results.Load(lists[1]); err != nil {
			return err
		}
	}
	text, err := render(ours, theirs, causes, note)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

const head = `# Conformance

What became of upstream's specs on a real node: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
kubelet %s, with Fairlead or containerd as the runtime, runc, cgroup v1, no cluster DNS and no kube-proxy. The images are
stand-ins made on the spot, of busybox, bash, agnhost and small programs. [CONTRIBUTING.md](../CONTRIBUTING.md) says how to run
it; this page is made by ` + "`make conformance`" + ` and not edited. A spec that has not run, or not to its end, is not here.

`

func render(ours, theirs results.List, causes map[string]string, note string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, head, results.Kubernetes)
	if note != "" {
		b.WriteString(note + "\n\n")
	}
	b.WriteString("| | ran | passed | skipped themselves | failed |\n| --- | --- | --- | --- | --- |\n")
	count(&b, "Fairlead", ours)
	if theirs != nil {
		count(&b, "containerd 2.4.2", theirs)
	}
	b.WriteString("\n## Not passed\n\n| spec | Fairlead | containerd | cause |\n| --- | --- | --- | --- |\n")
	var both, one, unexplained, needless []string
	for _, name := range names(ours, theirs) {
		o, c := ours.State(name), theirs.State(name)
		switch {
		case !passedOrNotRun(o) || !passedOrNotRun(c):
			cause := causes[name]
			if cause == "" && o != results.Failed && c != results.Failed {
				cause = cmp.Or(ours.Why(name), theirs.Why(name)) // it says itself why it is skipped
			}
			if cause == "" {
				unexplained = append(unexplained, name)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", escape(name), o, c, escape(cause))
			continue
		case o == c:
			both = append(both, name)
		default:
			one = append(one, fmt.Sprintf("%s (Fairlead: %s, containerd: %s)", name, o, c))
		}
		if causes[name] != "" {
			needless = append(needless, name)
		}
	}
	if len(unexplained) > 0 {
		return "", fmt.Errorf("these have not passed, and no cause is given for them:\n%s", strings.Join(unexplained, "\n"))
	}
	if len(needless) > 0 {
		return "", fmt.Errorf("these have passed, and a cause is given for them; take it away:\n%s", strings.Join(needless, "\n"))
	}
	section(&b, "Passed on both", both)
	section(&b, "Passed on one, not run on the other (-)", one)
	return b.String(), nil
}

func passedOrNotRun(s results.State) bool { return s == results.Passed || s == results.NotRun }

func section(b *strings.Builder, title string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, name := range names {
		fmt.Fprintf(b, "* %s\n", escape(name))
	}
}

func count(b *strings.Builder, who string, l results.List) {
	n := l.Count()
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d |\n", who, len(l), n[results.Passed], n[results.Skipped], n[results.Failed])
}

// names are those of both lists.
func names(a, b results.List) []string {
	var all []string
	for _, s := range slices.Concat(a, b) {
		all = append(all, s.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// escape keeps Markdown from reading a name as a link or as columns.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "[", `\[`, "]", `\]`, "<", "&lt;", "\n", " ").Replace(s)
}
