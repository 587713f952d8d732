package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/installer"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/monitor"
	"fairlead.run/internal/operator/plugins"
)

// exitPermanent says that trying again does not help.
const exitPermanent = 3

// terminationLog is where a kubelet reads what a container has to say at its end.
const terminationLog = "/dev/termination-log"

// errInstall is a result that was printed already.
type errInstall struct{ code int }

func (e errInstall) Error() string { return "the installation did not succeed" }

// installFlags are those of install and what is below it.
type installFlags struct {
	options             installer.Options
	logFormat, logLevel string
	result, readyFile   string
}

// sourceFlags say what is installed.
type sourceFlags struct {
	payloads []string
	settings []string
	stay     bool
	remove   bool
	ready    bool
}

func (a *app) installCommand() *cobra.Command {
	f := &installFlags{}
	s := &sourceFlags{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install container runtimes on this node, beside its containerd or CRI-O",
		Long: "Install container runtimes on this node, from the folders of their payloads: put the files into a folder of\n" +
			"their version, write the handlers into the configuration of the node's containerd or CRI-O, restart that,\n" +
			"and see that it serves the new handlers and all that it served before. If not, everything is put back.\n\n" +
			"It needs no cluster and no credentials. It can be killed at any moment and started again. Installing another\n" +
			"version is an upgrade: pods stay on the version that they began with, and it goes with the last of them.\n" +
			"docs/installer.md says more.\n\n" +
			"The exit code is 0 if it is installed, 1 if it is not and may be tried again, 2 for a wrong command line, and\n" +
			"3 if trying again does not help before something is changed.",
		Example: "  fairlead install --payload /payload\n  fairlead install --payload /gvisor --payload /kata --stay --host /host",
		Args:    args(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.install(cmd.Context(), f, s, false) },
	}
	f.add(cmd)
	s.add(cmd)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		err = usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
		if s.ready {
			return err // a probe leaves no result
		}
		return f.misused(err)
	})
	cmd.AddCommand(a.installUpgradeCommand(f), a.uninstallCommand(f), a.installStatusCommand(f), a.installMonitorCommand(f))
	return cmd
}

func (f *installFlags) add(cmd *cobra.Command) {
	s := cmd.PersistentFlags()
	o := &f.options
	s.StringVar(&o.Root, "host", "/", "where the node's root directory is seen, as in a container")
	s.StringVar(&o.OS, "os", "", "profile of the operating system: ubuntu, coreos, flatcar, suse-chost, debian or rhel (default as /etc/os-release says)")
	s.StringVar(&o.MachineImage, "machine-image", "", "machine image that the node is said to have, by a name as of --os or gardenlinux; one with another operating system is refused")
	s.StringVar(&o.Distribution, "distribution", "", "how the runtime is set up: containerd, crio, k3s, rke2, k0s or microk8s (default as is found)")
	s.StringVar(&o.BinaryPath, "binary-path", "", "folder for runtimes (default that of the operating system)")
	s.StringVar(&o.Socket, "cri-socket", "", "socket of the runtime (default that of the distribution)")
	s.StringVar(&o.Config, "cri-config", "", "configuration file of the runtime (default that of the distribution)")
	s.StringVar(&o.Unit, "unit", "", "systemd unit of the runtime (default that of the distribution)")
	s.StringVar(&o.Runtime, "cri", "", "which runtime is meant, containerd or crio (default the one that is found)")
	s.StringVar(&o.Restart, "restart", "auto", "how the runtime is restarted: auto, systemd, sighup, command or none; auto is systemd")
	s.StringArrayVar(&o.RestartCommand, "restart-command", nil, "a word of the command for --restart command: its program on the node, and then each argument")
	s.StringVar(&o.State, "journal", installer.DefaultState, "folder for what the installer remembers")
	s.DurationVar(&o.Wait, "wait", time.Minute, "how long the runtime may take to come back")
	s.DurationVar(&o.Interval, "restart-interval", time.Minute, "what is at least between two restarts of the runtime")
	s.DurationVar(&o.LockWait, "lock-wait", 5*time.Minute, "how long to wait for another installer")
	s.StringVar(&f.logFormat, "log-format", "text", "json or text")
	s.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	s.StringVar(&f.result, "termination-log", "", "`FILE` that the result is written to as well (default /dev/termination-log where there is one)")
	s.StringVar(&f.readyFile, "ready-file", "/run/fairlead-install/ready", "`FILE` that is there while a process with --stay is ready")
}

func (s *sourceFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&s.payloads, "payload", nil, "a `FOLDER` with payload.json; may be given more than once, and all are installed with one restart")
	f.StringArrayVar(&s.settings, "settings", nil, "a `FILE` with settings for a payload, in the order of those; - for none")
	f.BoolVar(&s.stay, "stay", false, "stay, and put back what is changed")
	f.BoolVar(&s.remove, "remove", false, "take away what the payloads bring, as uninstall does")
	f.BoolVar(&s.ready, "ready", false, "install nothing, and say by the exit code whether a process with --stay is ready; it is for probes")
}

// open makes an installer, and arms the places where tests end it.
func (a *app) openInstaller(f *installFlags) (*installer.Installer, *slog.Logger, error) {
	if err := failpoint.Enable(os.Getenv(failpoint.Env)); err != nil {
		return nil, nil, usageError{err}
	}
	log, err := a.loggerOf(f.logLevel, f.logFormat)
	if err != nil {
		return nil, nil, usageError{err}
	}
	i, err := installer.New(f.options, log)
	return i, log, err
}

func (s *sourceFlags) read() ([]installer.Source, error) {
	if len(s.payloads) == 0 {
		return nil, usageError{errors.New("--payload is missing: the folder with payload.json")}
	}
	if len(s.settings) > len(s.payloads) {
		return nil, usageError{errors.New("there are more --settings than --payload")}
	}
	var all []installer.Source
	for n, dir := range s.payloads {
		source := installer.Source{Dir: dir}
		if n < len(s.settings) && s.settings[n] != "-" {
			data, err := os.ReadFile(s.settings[n])
			if err != nil {
				return nil, fault.New(payload.ConfigurationProblem, "read settings: %w", err)
			}
			if source.Settings, err = payload.DecodeSettings(data); err != nil {
				return nil, fault.New(payload.ConfigurationProblem, "%s: %w", s.settings[n], err)
			}
		}
		all = append(all, source)
	}
	return all, nil
}

func (a *app) install(ctx context.Context, f *installFlags, s *sourceFlags, upgrade bool) error {
	if s.ready {
		return f.isReady()
	}
	if s.stay {
		if err := f.tellReady(false); err != nil {
			return err // it would be that of a process before
		}
	}
	sources, err := s.read()
	var i *installer.Installer
	var log *slog.Logger
	if err == nil {
		i, log, err = a.openInstaller(f)
	}
	if err == nil && upgrade {
		err = i.Installed(sources)
	}
	if err != nil {
		return a.refused(f, err)
	}
	if s.remove {
		return a.removeAll(ctx, f, s, i)
	}
	results := i.Install(ctx, sources)
	if err := a.report(f, results); err != nil || !s.stay {
		return err
	}
	if err := f.tellWarnings(results); err != nil {
		log.Error("the cluster is not told of warnings", "err", err)
	}
	if err := f.tellReady(true); err != nil {
		return err
	}
	defer func() { _ = f.tellReady(false) }()
	log.Info("watching what was installed")
	w := &installer.Watcher{Installer: i, Sources: sources, Ready: f.tellReady, Tell: f.tellEvent}
	if results := w.Run(ctx); results != nil {
		return a.report(f, results)
	}
	return nil
}

// removeAll takes away what the payloads bring.
func (a *app) removeAll(ctx context.Context, f *installFlags, s *sourceFlags, i *installer.Installer) error {
	var results []payload.InstallResult
	for _, dir := range s.payloads {
		kind, err := installer.TypeOf(dir)
		if err != nil {
			return a.refused(f, err)
		}
		results = append(results, i.Remove(ctx, kind))
	}
	err := a.report(f, results)
	if err != nil || !s.stay {
		return err
	}
	if err := f.tellReady(true); err != nil {
		return err
	}
	<-ctx.Done()
	return f.tellReady(false)
}

// refused reports what failed before there was an installer.
func (a *app) refused(f *installFlags, err error) error {
	if errors.As(err, new(usageError)) {
		return f.misused(err)
	}
	return a.report(f, []payload.InstallResult{{
		APIVersion: payload.APIVersion, Kind: payload.KindResult, State: payload.Refused,
		Reason: fault.Of(err), Message: err.Error(),
	}})
}

// misused leaves a result of a wrong command line: an operator that is newer than the
// payload would otherwise never know what it has asked for in vain.
func (f *installFlags) misused(err error) error {
	left := f.leave(payload.InstallResult{
		APIVersion: payload.APIVersion, Kind: payload.KindResult, State: payload.Refused, Reason: payload.ConfigurationProblem,
		Message: err.Error() + "; if an operator asks for it, that is newer than this image: apply the payloads of its release",
	})
	if left != nil {
		return errors.Join(err, left)
	}
	return err
}

// report prints results and leaves the first that failed, or else the first, as
// the termination message.
func (a *app) report(f *installFlags, results []payload.InstallResult) error {
	code := 0
	told := results[0]
	for _, r := range results {
		data, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		if _, err := fmt.Fprintf(a.out, "%s\n", data); err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		if r.State == payload.Installed || r.State == payload.Removed || code != 0 {
			continue
		}
		told, code = r, exitFailure
		if r.Reason.Permanent() {
			code = exitPermanent
		}
	}
	if err := f.leave(told); err != nil {
		return err
	}
	if code != 0 {
		return errInstall{code}
	}
	return nil
}

// leave writes a result where a kubelet reads it.
func (f *installFlags) leave(told payload.InstallResult) error {
	if f.result == "" {
		if _, err := os.Stat(terminationLog); err != nil {
			return nil // it is no container's
		}
		f.result = terminationLog
	}
	data, err := json.Marshal(told)
	if err == nil && len(data) > payload.MaxResult {
		told.Message, told.Warnings, told.Handlers = told.Message[:min(len(told.Message), 512)], nil, nil
		data, err = json.Marshal(told)
	}
	if err == nil && len(data) > payload.MaxResult {
		told.Served = nil // which is not known then, and changes nothing
		data, err = json.Marshal(told)
	}
	if err == nil {
		err = os.WriteFile(f.result, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("leave the result: %w", err)
	}
	return nil
}

// tellReady leaves a file for as long as all is as it is to be.
func (f *installFlags) tellReady(is bool) error {
	if !is {
		err := os.Remove(f.readyFile)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.readyFile), 0o755); err != nil {
		return fmt.Errorf("tell that it is ready: %w", err)
	}
	return os.WriteFile(f.readyFile, nil, 0o644)
}

// eventSuffix names the file of events that no probe has told yet.
const eventSuffix = ".event"

// events opens that file for this process alone: a probe is another one, and what it
// has not read must not be taken away.
func (f *installFlags) events(flags int) (*os.File, error) {
	file, err := os.OpenFile(f.readyFile+eventSuffix, flags, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// tellEvent leaves a sentence for the next probe.
func (f *installFlags) tellEvent(text string) error {
	if err := os.MkdirAll(filepath.Dir(f.readyFile), 0o755); err != nil {
		return fmt.Errorf("tell an event: %w", err)
	}
	out, err := f.events(os.O_WRONLY | os.O_CREATE | os.O_APPEND)
	if err != nil {
		return fmt.Errorf("tell an event: %w", err)
	}
	_, err = fmt.Fprintln(out, text)
	return errors.Join(err, out.Close())
}

// warned is the first word of a warning that is told as an event.
const warned = "InstallWarning: "

// tellWarnings leaves the warnings of results for the first probe, each once: they are
// about the node, such as the kubelet's flags, and not about a type. Otherwise they are
// in a log and in a result that no cluster sees while this process runs.
func (f *installFlags) tellWarnings(results []payload.InstallResult) error {
	told := map[string]bool{}
	for i := range results {
		for _, text := range results[i].Warnings {
			if told[text] {
				continue
			}
			told[text] = true
			if err := f.tellEvent(warned + text); err != nil {
				return err
			}
		}
	}
	return nil
}

// isReady answers a probe: whether another process has left its file. One probe fails
// with what there is to tell: the kubelet makes an event of that, for which nobody
// on the node needs credentials.
func (f *installFlags) isReady() error {
	if _, err := os.Stat(f.readyFile); err != nil {
		return fmt.Errorf("it is not ready: %w", err)
	}
	in, err := f.events(os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(in)
		err = errors.Join(err, in.Truncate(0), in.Close()) // so that it is told once
	}
	switch {
	case err != nil:
		return fmt.Errorf("tell an event: %w", err)
	case len(text) == 0:
		return nil
	}
	return errors.New(strings.TrimSpace(string(text)))
}

func (a *app) installUpgradeCommand(f *installFlags) *cobra.Command {
	s := &sourceFlags{}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Install another version of what is installed",
		Long: "Install another version of what is installed. It is install, but refuses what is not on the node yet. The old\n" +
			"version stays until no pod is on it any more.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.install(cmd.Context(), f, s, true) },
	}
	s.add(cmd)
	return cmd
}

func (a *app) uninstallCommand(f *installFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall TYPE",
		Short: "Take a runtime away from this node",
		Long: "Take a runtime away from this node: first its handlers out of the configuration of containerd or CRI-O, then\n" +
			"its files. It is refused while pods use it. What was there before it was installed is as it was. TYPE is one\n" +
			"that fairlead install status shows, or another name of it, as kata is of kata-containers.\n\n" +
			"The exit code is 0 if it is removed, 1 if it is not and may be tried again, 2 for a wrong command line, and 3 if\n" +
			"trying again does not help, as for a type that is not installed.",
		Args: args("TYPE"),
		RunE: func(cmd *cobra.Command, list []string) error {
			i, _, err := a.openInstaller(f)
			if err != nil {
				return a.refused(f, err)
			}
			return a.report(f, []payload.InstallResult{i.Uninstall(cmd.Context(), list[0], plugins.All().Canonical(list[0]))})
		},
	}
}

func (a *app) installStatusCommand(f *installFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which runtimes are installed on this node",
		Long: "Show which runtimes are installed on this node, whether their handlers are served, and how many pods are on\n" +
			"them. The exit code is 1 if one of them is not served or not finished.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			i, _, failed := a.openInstaller(f)
			if errors.As(failed, new(usageError)) {
				return failed
			}
			var all []installer.Status
			if failed == nil {
				all, failed = i.Status(cmd.Context())
			} else {
				var err error
				all, err = installer.Recorded(f.options)
				failed = errors.Join(failed, err)
			}
			if err := a.print(all, func() [][]string { return statusRows(all) }); err != nil || failed != nil {
				return errors.Join(err, failed)
			}
			for _, s := range all {
				if !s.Served || s.Phase != "done" {
					return errInstall{exitFailure}
				}
			}
			return nil
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func statusRows(all []installer.Status) [][]string {
	rows := [][]string{{"TYPE", "VERSION", "HANDLERS", "SERVED", "PODS", "OLD VERSIONS", "PHASE", "LAST ERROR"}}
	for _, s := range all {
		rows = append(rows, []string{s.Type, s.Version, strings.Join(s.Handlers, " "), strconv.FormatBool(s.Served), strconv.Itoa(s.Pods), strings.Join(s.Old, " "), s.Phase, s.LastError})
	}
	return rows
}

func (a *app) installMonitorCommand(f *installFlags) *cobra.Command {
	m := monitor.Monitor{}
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Restart the node's containerd or CRI-O when it does not answer",
		Long: "Ask the node's containerd or CRI-O for its status, and restart it when it has not answered for a while, ever\n" +
			"more rarely if that does not help. CRI-O is restarted, too, and not sent SIGHUP. While an installer is at work on\n" +
			"the node the restart is left to that one, for ten minutes at most. What was done is left in\n" +
			"/run/fairlead-installer/monitor.json, and the node's pods of fairlead install make events of it. deploy/systemd\n" +
			"has a unit for this. Where Gardener's own monitor or its node agent runs, leave this one off.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, log, err := a.openInstaller(f)
			if err != nil {
				return err
			}
			if m.Restarter, err = i.Reviver(); err != nil {
				return err
			}
			m.Ask, m.KeepAway, m.Log = i.Answers, i.KeepAway, log
			m.Report = func(e monitor.Event) error { return monitor.Append(i.Events(), e) }
			return m.Run(cmd.Context())
		},
	}
	cmd.Flags().DurationVar(&m.Every, "every", monitor.Every, "how often the runtime is asked")
	cmd.Flags().DurationVar(&m.After, "after", monitor.After, "how long it may be without an answer until it is restarted")
	return cmd
}
