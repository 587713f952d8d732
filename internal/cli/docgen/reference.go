package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// reference is the page of all commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n<!-- Generated from the commands by make generate; do not edit. -->\n\n" + root.Long + "\n\n" +
		"Commands use the daemon that serves `/run/fairlead/fairlead.sock`. Where none does, they start one\n" +
		"within themselves and end it when they are done; pods go on without it. With `--endpoint` they use any\n" +
		"CRI runtime, such as containerd or CRI-O.\n\n" +
		"Exit codes: 0 for success, 1 for a failure, 2 for a wrong command line, 130 when a signal ended the\n" +
		"command; `exec` passes the code of its command on.\n\n## Flags of all commands\n\n")
	flags(&b, root.PersistentFlags())
	commands(&b, root)
	return b.String()
}

func commands(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.HasAvailableSubCommands() {
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
			flags(b, c.LocalNonPersistentFlags())
		}
	}
}

func unindent(s string) string { return strings.TrimPrefix(strings.ReplaceAll(s, "\n  ", "\n"), "  ") }

func flags(b *strings.Builder, set *pflag.FlagSet) {
	b.WriteString("| flag | meaning |\n| --- | --- |\n")
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && !strings.Contains(usage, "default") {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "| %s | %s |\n", name, strings.ReplaceAll(usage, "|", "\\|"))
	})
}
