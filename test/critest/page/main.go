// Command page writes docs/critest.md from runs of cri-tools' validation suite:
//
//	page -causes test/critest/causes.json -kept docs/critest.json -page docs/critest.md bin/critest/*/*.json
//
// The runs that the page was written from are kept beside it: those that are named
// take the place of the ones before them, and the others stay. Every spec that has not passed in a run needs a cause, written by somebody who
// looked into it.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"fairlead.run/test/critest/runs"
	"fairlead.run/test/e2e/results"
)

func main() {
	causes := flag.String("causes", "test/critest/causes.json", "file with the cause of each spec that has not passed")
	note := flag.String("note", "", "what a reader has to know of these runs")
	page := flag.String("page", "docs/critest.md", "the page to write")
	kept := flag.String("kept", "docs/critest.json", "the runs of the page, to read and to write")
	flag.Parse()
	if err := run(*causes, paths{*page, *kept}, *note, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

type paths struct{ page, kept string }

func run(causesFile string, to paths, note string, files []string) error {
	causes, err := runs.ReadCauses(causesFile)
	if err != nil {
		return err
	}
	all, err := runs.ReadKept(to.kept)
	if err != nil {
		return err
	}
	for _, f := range files {
		r, err := runs.Read(f)
		if err != nil {
			return err
		}
		all = runs.With(all, r)
	}
	if len(all) == 0 {
		return fmt.Errorf("there are no runs; \"make critest\" makes one")
	}
	slices.SortStableFunc(all, func(a, b runs.Run) int {
		return cmp.Or(cmp.Compare(a.Suite, b.Suite), cmp.Compare(a.Cgroup, b.Cgroup),
			-cmp.Compare(a.Runtime, b.Runtime), -cmp.Compare(a.Handler, b.Handler))
	})
	text, err := render(all, causes, note)
	if err != nil {
		return err
	}
	if err := runs.WriteKept(to.kept, all); err != nil {
		return err
	}
	return os.WriteFile(to.page, []byte(text), 0o644)
}

const head = `# The validation suite of cri-tools

What became of the specs of critest, with which upstream validates runtimes, on Fairlead and on containerd: the same
machine, handlers and images. The images are stand-ins made on the spot, of busybox and a small program.
[CONTRIBUTING.md](../CONTRIBUTING.md) says how to run it; this page is made by ` + "`make critest-page`" + ` and not edited.

`

func render(all []runs.Run, causes runs.Causes, note string) (string, error) {
	var b strings.Builder
	b.WriteString(head)
	if note != "" {
		b.WriteString(note + "\n\n")
	}
	b.WriteString("| critest | cgroup | kernel | tested | ran | passed | skipped themselves | failed |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range all {
		n := r.Specs.Count()
		fmt.Fprintf(&b, "| %s | %s | %s | %s%s | %d | %d | %d | %d |\n", r.Suite, r.Cgroup, short(r.Kernel), strings.Join(r.Programs, ", "), timeout(r),
			len(r.Specs), n[results.Passed], n[results.Skipped], n[results.Failed])
	}
	b.WriteString("\n## Not passed\n\n| spec | not passed on | cause |\n| --- | --- | --- |\n")
	var unexplained []string
	for _, name := range names(all) {
		where := missed(all, name)
		if where == "" {
			continue
		}
		why, without := explain(all, causes, name)
		if len(without) > 0 {
			unexplained = append(unexplained, name+": "+strings.Join(without, ", "))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", escape(name), where, escape(strings.Join(why, " ")))
	}
	if len(unexplained) > 0 {
		return "", fmt.Errorf("these have not passed, and no cause is given for them:\n%s", strings.Join(unexplained, "\n"))
	}
	b.WriteString("\n## Passed in every run of Fairlead\n\n")
	for _, name := range names(all) {
		if passed(all, name) {
			fmt.Fprintf(&b, "* %s\n", escape(name))
		}
	}
	return b.String(), nil
}

// short is the part of a kernel's version that says what it can do: 6.12 of 6.12.117+deb12-amd64.
func short(kernel string) string {
	parts := strings.SplitN(kernel, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// timeout says what was not as it comes.
func timeout(r runs.Run) string {
	if r.NRITimeout == "" || r.NRITimeout == "0s" {
		return ""
	}
	return ", NRI plugins may take " + r.NRITimeout
}

// missed says in which runs a spec failed, and in which it was skipped.
func missed(all []runs.Run, name string) string {
	var out []string
	for _, state := range []results.State{results.Failed, results.Skipped} {
		var where []string
		ran := 0
		for _, r := range all {
			switch r.Specs.State(name) {
			case state:
				where = append(where, place(r))
				ran++
			case results.NotRun:
			default:
				ran++
			}
		}
		slices.Sort(where)
		where = slices.Compact(where)
		switch {
		case len(where) == 0:
		case ran == count(all, name, state):
			out = append(out, string(state)+" everywhere")
		default:
			out = append(out, string(state)+": "+strings.Join(where, ", "))
		}
	}
	return strings.Join(out, "; ")
}

// explain are the causes for which a spec has not passed, and the runs without one.
func explain(all []runs.Run, causes runs.Causes, name string) (why, without []string) {
	for _, r := range all {
		state := r.Specs.State(name)
		if state == results.Passed || state == results.NotRun {
			continue
		}
		if cause := causes.Of(name, r); cause == "" {
			without = append(without, string(state)+" on "+place(r))
		} else if !slices.Contains(why, cause) {
			why = append(why, cause)
		}
	}
	return why, without
}

func count(all []runs.Run, name string, state results.State) int {
	n := 0
	for _, r := range all {
		if r.Specs.State(name) == state {
			n++
		}
	}
	return n
}

func place(r runs.Run) string { return r.Runtime + " " + r.Handler + " " + r.Cgroup }

// passed says whether a spec passed in each run of Fairlead that had it.
func passed(all []runs.Run, name string) bool {
	ran := false
	for _, r := range all {
		state := r.Specs.State(name)
		if r.Runtime != runs.Fairlead || state == results.NotRun {
			continue
		}
		if state != results.Passed {
			return false
		}
		ran = true
	}
	return ran
}

// names are those of all specs.
func names(all []runs.Run) []string {
	var out []string
	for _, r := range all {
		for _, s := range r.Specs {
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
