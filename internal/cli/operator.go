package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/operator/options"
)

func (a *app) operatorCommand() *cobra.Command {
	var o options.Options
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Bring container runtimes to the nodes of a cluster",
		Long: "Run the operator of a cluster until a signal ends it: it acts on WorkerPools and ContainerRuntimes, has\n" +
			"runtimes installed on nodes by pods of their payloads, labels nodes, and keeps RuntimeClasses.\n" +
			"docs/operator.md says how to run it.\n\n" +
			"It is a program of its own, fairlead-operator, beside this one or on PATH, which this command becomes.\n" +
			"It needs no daemon and reads no configuration file. It is no part of a node.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			program, err := operatorProgram()
			if err != nil {
				return err
			}
			argv := append([]string{program}, givenFlags(cmd)...)
			return fmt.Errorf("become %s: %w", program, syscall.Exec(program, argv, os.Environ()))
		},
	}
	o.Register(cmd.Flags())
	return cmd
}

// givenFlags are those of a command's own that are on its command line.
func givenFlags(cmd *cobra.Command) []string {
	var out []string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			out = append(out, "--"+f.Name+"="+f.Value.String())
		}
	})
	return out
}

// operatorProgram finds it beside this program, or on PATH.
func operatorProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), options.Program)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(options.Program)
	if err != nil {
		return "", fmt.Errorf("find %s: it is neither beside this program nor on PATH; install it: %w", options.Program, errdefs.ErrNotFound)
	}
	return path, nil
}
