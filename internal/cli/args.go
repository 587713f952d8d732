package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// args checks a command's arguments against their names as its usage line has
// them: one for each, and "..." behind the last where there may be more.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, list []string) error {
		if err := checkArgs(cmd, names, list); err != nil {
			return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
		}
		return nil
	}
}

func checkArgs(cmd *cobra.Command, names, list []string) error {
	if len(list) < len(names) {
		return fmt.Errorf("%s is missing: want %s", strings.TrimSuffix(names[len(list)], "..."), usage(cmd))
	}
	if len(list) == len(names) || (len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")) {
		return nil
	}
	extra := list[len(names)]
	if !cmd.HasSubCommands() {
		return fmt.Errorf("argument %q is one too many: want %s", extra, usage(cmd))
	}
	if near := cmd.SuggestionsFor(extra); len(near) > 0 {
		return fmt.Errorf("%s has no command %q; did you mean %s?", cmd.CommandPath(), extra, strings.Join(near, " or "))
	}
	return fmt.Errorf("%s has no command %q", cmd.CommandPath(), extra)
}

// usage is the command's usage line without the word that stands for flags.
func usage(cmd *cobra.Command) string {
	return strings.Replace(strings.TrimSuffix(cmd.UseLine(), " [flags]"), " [flags]", "", 1)
}
