// Package cli is the fairlead command: a file for each subcommand. It is a
// client of the CRI socket and of the small admin service beside it, or starts
// the daemon within itself where none runs.
//
// It holds no rules about pods; those are in internal/node.
//
// Larger than other packages: it has a file for each command, and they share
// little else than how errors and tables are printed.
package cli

//go:generate go run ./docgen ../../docs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/cli/remote"
	"fairlead.run/internal/errdefs"
)

// Exit codes beside 0 and those of exec.
const (
	exitFailure   = 1
	exitUsage     = 2
	exitBlind     = 2   // fsck could not look
	exitInterrupt = 130 // as shells report SIGINT
)

// errInterrupted says that a signal ended the command, after it tidied up.
var errInterrupted = errors.New("interrupted")

// usageError is a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// app is what all commands share.
type app struct {
	version  string
	in       io.Reader
	out, err io.Writer

	endpoint string
	config   []string
	flags    []*config.Flag
	output   string

	// again gets an element for SIGHUP once it is not nil: then that does not end
	// the command.
	again atomic.Pointer[chan struct{}]
}

// Main runs the command line and returns the process's exit code. Version is
// Fairlead's.
func Main(version string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	a := &app{version: version, in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		go a.hangUp(hangups, stop) // ends with the process
	}
	return a.run(ctx, args)
}

// hangUp ends the command for a signal, or has it read its configuration again if
// that is what it does.
func (a *app) hangUp(signals <-chan os.Signal, end func()) {
	for range signals {
		again := a.again.Load()
		if again == nil {
			end()
			return
		}
		select {
		case *again <- struct{}{}:
		default: // it is about to
		}
	}
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && cancelled(err) {
		err = errors.Join(errInterrupted, err)
	}
	return a.exitCode(err)
}

// cancelled says whether an error comes of a call that was given up, by us or
// on the way to the daemon.
func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// exitCode prints an error and says which code it stands for.
func (a *app) exitCode(err error) int {
	var exec *remote.ExitError
	var installed errInstall
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exec):
		return exec.Code
	case errors.As(err, &installed):
		return installed.code // which was told already
	case errors.Is(err, errInterrupted):
		return exitInterrupt
	case errors.Is(err, errLeft), errors.Is(err, errUnschedulable), errors.Is(err, errFindings):
		return exitFailure // which was told already
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(a.err, "fairlead: %s\n", visible(err.Error()))
		return exitUsage
	}
	_, _ = fmt.Fprintf(a.err, "fairlead: %v\n", readable(err))
	if errors.As(err, new(blindError)) {
		return exitBlind
	}
	return exitFailure
}

// kinds are the ends of errors that say no more than the text before them.
var kinds = []error{
	errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrInvalidArgument, errdefs.ErrPrecondition,
	errdefs.ErrUnavailable, errdefs.ErrExhausted, errdefs.ErrUnimplemented, errdefs.ErrDeadline,
}

// readable takes off what is for programs: gRPC's wrapping, and the kind.
func readable(err error) string {
	lines := strings.Split(rpcPrefix.ReplaceAllString(visible(err.Error()), ""), "\n")
	for i := range lines {
		for _, k := range kinds {
			lines[i] = strings.TrimSuffix(lines[i], ": "+k.Error())
		}
	}
	return strings.Join(lines, "\n          ") // below the first, after "fairlead: "
}

// visible writes control characters out. Errors quote names from manifests and
// answers of registries, and those must not drive the terminal.
func visible(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsControl(r) && r != '\n' && r != '\t':
			_, _ = fmt.Fprintf(&out, `\x%02x`, r)
		case unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			_, _ = fmt.Fprintf(&out, `\u%04x`, r) // it would show the rest in another order, or line
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// oneLine is visible where a line break would make another line of a table or a
// list, which others read.
func oneLine(text string) string {
	return visible(lineBreaks.Replace(text))
}

var lineBreaks = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// Command is the whole command line, for reference pages.
func Command(version string) *cobra.Command {
	return (&app{version: version, in: os.Stdin, out: os.Stdout, err: os.Stderr}).root()
}

func (a *app) root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fairlead",
		Short: "Run Kubernetes pods, each on the runtime that its RuntimeClass names",
		Long: "Fairlead runs Kubernetes pods, each on the container runtime that its RuntimeClass names.\n" +
			"Start with: fairlead run -f pod.yaml",
		SilenceErrors: true, SilenceUsage: true,
		Args:              args(), // or else an unknown command is no wrong usage
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})
	a.flags = config.Flags()
	shared := cmd.PersistentFlags()
	shared.StringVarP(&a.endpoint, "endpoint", "e", "", "socket of the CRI runtime to use (default unix:///run/fairlead/fairlead.sock, or a daemon within the command if nobody serves it)")
	shared.StringArrayVar(&a.config, "config", nil, "configuration file or folder; may be given more than once (default /etc/fairlead)")
	for _, f := range a.flags {
		if f.Name == "root" || f.Name == "state" {
			shared.Var(f, f.Name, f.Usage)
		}
	}
	cmd.AddCommand(a.runCommand(), a.upCommand(), a.nodeCommand(), a.applyCommand(), a.deleteCommand(), a.restartCommand(), a.getCommand(), a.describeCommand(), a.waitCommand(), a.topCommand(), a.eventsCommand(), a.runtimeCommand(), a.psCommand(), a.logsCommand(), a.execCommand(), a.portForwardCommand(),
		a.stopCommand(), a.rmCommand(), a.imageCommand(), a.handlersCommand(), a.classesCommand(), a.opsCommand(), a.traceCommand(), a.fsckCommand(),
		a.configCommand(), a.webhookCommand(), a.operatorCommand(), a.installCommand(), a.debugCommand(), a.versionCommand())
	return cmd
}

// daemonFlags adds the flags that set keys of the configuration.
func (a *app) daemonFlags(cmd *cobra.Command) {
	for _, f := range a.flags {
		if f.Name != "root" && f.Name != "state" {
			cmd.Flags().Var(f, f.Name, f.Usage)
		}
	}
}

// loadConfig reads the configuration and applies flags.
func (a *app) loadConfig() (*config.Config, error) {
	cfg, err := config.Load(a.config...)
	if err != nil {
		return nil, err
	}
	if err := cfg.Override(a.flags); err != nil {
		return nil, err
	}
	return cfg, cfg.Validate()
}

// terminal is the descriptor of a terminal behind v, if there is one.
func terminal(v any) (fd int, ok bool) {
	f, isFile := v.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}
