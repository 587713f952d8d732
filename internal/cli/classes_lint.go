package cli

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.run/internal/classes"
)

func (a *app) classesLintCommand() *cobra.Command {
	w := &where{lint: true}
	cmd := &cobra.Command{
		Use:   "lint -f PATH...",
		Short: "Find what is wrong with RuntimeClasses in manifests",
		Long: "Find what is wrong with RuntimeClasses in manifests: classes that are missing or not sound, selectors\n" +
			"that conflict, API versions that are gone, what policies refuse and what handlers cannot do. The\n" +
			"manifests are all that there is, or with --kubeconfig or --context a cluster's besides. The exit code\n" +
			"is 1 if there are errors; warnings change nothing.",
		Example: "fairlead classes lint -f manifests/\n" +
			"fairlead classes lint -f - --context production < pod.yaml",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(w.files) == 0 {
				return usageError{errors.New("say what to look at with -f PATH")}
			}
			if err := a.checkOutput(); err != nil {
				return err
			}
			s, set, err := a.readClasses(cmd.Context(), w)
			if err != nil {
				return err
			}
			return a.tellFindings(classes.Lint(set, s), len(set.Objects), set.Skipped)
		},
	}
	w.flags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) tellFindings(found []classes.Finding, objects, skipped int) error {
	wrong := 0
	for _, f := range found {
		if f.Severity == classes.Error {
			wrong++
		}
	}
	if a.output != "table" {
		if found == nil {
			found = []classes.Finding{}
		}
		if err := a.print(found, nil); err != nil {
			return err
		}
	} else {
		var text bytes.Buffer
		for _, f := range found {
			_, _ = fmt.Fprintln(&text, findingText(f))
		}
		if _, err := a.out.Write(text.Bytes()); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(a.err, "%d errors, %d warnings in %d objects; %d of other kinds\n", wrong, len(found)-wrong, objects, skipped)
	}
	if wrong > 0 {
		return errFindings
	}
	return nil
}

// findingText is a finding in one line, as compilers write theirs.
func findingText(f classes.Finding) string {
	text := f.Message
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Object != "" {
		text = f.Object + ": " + text
	}
	return oneLine(fmt.Sprintf("%s:%d: %s: %s [%s]", f.File, f.Line, f.Severity, text, f.Rule))
}
