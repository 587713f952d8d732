package cli

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/daemon"
	"fairlead.run/internal/errdefs"
)

func (a *app) runtimeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Serve the CRI, for a kubelet, crictl, or the other commands",
		Long: "Serve the CRI on a unix socket until a signal ends it. Pods go on without the daemon;\n" +
			"the next one takes them over.\n\n" +
			"Changes of handlers in the configuration are taken up without a restart, when its files change and at\n" +
			"SIGHUP: all of them, or none if one does not work, and then the log says why.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return fmt.Errorf("only root can serve the CRI, as pods take mounts, namespaces and cgroups: %w", errdefs.ErrPrecondition)
			}
			again := make(chan struct{}, 1)
			a.again.Store(&again)
			source := daemon.Source{Load: a.loadConfig, Paths: a.config, Again: again}
			if len(source.Paths) == 0 {
				source.Paths = config.DefaultPaths()
			}
			d, err := daemon.Open(cmd.Context(), cfg, daemon.Options{Version: a.version, Log: a.logger(cfg), Source: source})
			if err != nil {
				return err
			}
			return d.Run(cmd.Context())
		},
	}
	a.daemonFlags(cmd)
	return cmd
}

func (a *app) logger(cfg *config.Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // validated with the rest
	options := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.err, options))
	}
	return slog.New(slog.NewTextHandler(a.err, options))
}
