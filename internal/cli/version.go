package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/endpoint"
)

// versionView is what the version command shows.
type versionView struct {
	Fairlead string `json:"fairlead"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Runtime  string `json:"runtime,omitempty"` // what serves the endpoint, if anything does
	Endpoint string `json:"endpoint,omitempty"`
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program, and of the runtime that it would use",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionView{Fairlead: a.version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			where := a.endpoint
			if where == "" {
				cfg, err := a.loadConfig()
				if err != nil {
					return err
				}
				where = address(cfg)
			}
			e, err := endpoint.Dial(cmd.Context(), where)
			if err == nil {
				v.Runtime, v.Endpoint = e.Name+" "+e.Version, e.Address
				_ = e.Close()
			} else if a.endpoint != "" {
				return err
			}
			return a.print(v, func() [][]string {
				rows := [][]string{{"fairlead", v.Fairlead}, {"go", v.Go}, {"platform", v.Platform}}
				if v.Runtime == "" {
					return append(rows, []string{"runtime", "no daemon runs"})
				}
				return append(rows, []string{"runtime", v.Runtime}, []string{"endpoint", v.Endpoint})
			})
		},
	}
	a.outputFlag(cmd)
	return cmd
}
