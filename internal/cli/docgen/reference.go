package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// wrap is the width of the page in characters.
const wrap = 110

// reference is the page of all commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n<!-- Generated from the commands by make generate; do not edit. -->\n\n" + root.Long + "\n\n" +
		"Commands use the daemon that serves `/run/fairlead/fairlead.sock`. Where none does, they start one\n" +
		"within themselves and end it when they are done; pods go on without it. With `--endpoint` they use any\n" +
		"CRI runtime, such as containerd or CRI-O.\n\n" +
		"Exit codes: 0 for success, 1 for a failure, 2 for a wrong command line, 130 when a signal ended the\n" +
		"command; `exec` passes the code of its command on.\n\n## Flags of all commands\n\n")
	flags(&b, root.PersistentFlags().FlagUsagesWrapped(wrap))
	commands(&b, root)
	return b.String()
}

func commands(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if !c.Runnable() {
			commands(b, c)
			continue
		}
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(b, "\n## %s\n\n    %s\n\n%s\n", c.CommandPath(), c.UseLine(), text)
		if c.Example != "" {
			fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", unindent(c.Example))
		}
		if c.LocalNonPersistentFlags().HasAvailableFlags() {
			b.WriteString("\n")
			flags(b, c.LocalNonPersistentFlags().FlagUsagesWrapped(wrap))
		}
		commands(b, c)
	}
}

func unindent(s string) string { return strings.TrimPrefix(strings.ReplaceAll(s, "\n  ", "\n"), "  ") }

// flags shows flags as --help does.
func flags(b *strings.Builder, usages string) {
	b.WriteString("```\n" + usages + "```\n")
}
