package cli

import (
	"github.com/spf13/cobra"

	"fairlead.run/internal/installer/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	var n doctor.Node
	all := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look over the container runtime of this node, whichever it is",
		Long: "Look over the container runtime of this node, whichever it is: its socket and version, its configuration and\n" +
			"what that imports, the handlers that are configured, those that are served, and their programs, /dev/kvm,\n" +
			"cgroups, the kubelet's flags, and what other installers have left. Each finding has what helps. It changes\n" +
			"nothing.\n\n" +
			"The exit code is 0 if there is no error, and 1 if there is one; warnings do not count.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			findings := doctor.Examine(cmd.Context(), n)
			if err := a.print(findings, func() [][]string { return doctorRows(findings, all) }); err != nil {
				return err
			}
			for _, f := range findings {
				if f.Level == doctor.Error {
					return errLeft
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.Root, "host", "/", "where the node's root directory is seen, as in a container")
	f.StringVar(&n.Choice.Name, "distribution", "", "how the runtime is set up: containerd, crio, k3s, rke2, k0s or microk8s (default as is found)")
	f.StringVar(&n.Override.Socket, "cri-socket", "", "socket of the runtime (default that of the distribution)")
	f.StringVar(&n.Override.Config, "cri-config", "", "configuration file of the runtime (default that of the distribution)")
	f.BoolVarP(&all, "all", "a", false, "show in the table what is well, too")
	a.outputFlag(cmd)
	return cmd
}

func doctorRows(findings []doctor.Finding, all bool) [][]string {
	rows := [][]string{{"LEVEL", "CODE", "OBJECT", "FINDING", "WHAT HELPS"}}
	for _, f := range findings {
		if all || f.Level != doctor.OK {
			rows = append(rows, []string{string(f.Level), f.Code, f.Object, f.Text, f.Fix})
		}
	}
	return rows
}
