package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/handlers"
)

// handlerRow is a handler as the CRI tells it, and what only Fairlead does.
type handlerRow struct {
	handlers.Handler
	Details *adminv1.Handler `json:"details,omitempty"`
}

func (a *app) handlersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "handlers",
		Short: "List the runtime handlers of this machine, and why one does not work",
		Long: "List the runtime handlers of this machine. Each is tried before it is offered: a container is really run\n" +
			"on it. That is done again when its program or its configuration changes, and every hour. One that was\n" +
			"removed and still has pods is Draining.\n\n" +
			"With -o wide: when it was tried last; the median start of a pod with one container (RunPodSandbox,\n" +
			"CreateContainer and StartContainer) of those that the daemon remembers; the memory of what the runtime\n" +
			"keeps beside a container; what it can do; and how many pods use it.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wide := a.output == "wide"
			if wide {
				a.output = "table"
			}
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(s *session) error { return a.listHandlers(cmd.Context(), s, wide) })
		},
	}
	a.outputFlag(cmd)
	cmd.Flags().Lookup("output").Usage = "table, wide, json or yaml"
	cmd.AddCommand(a.handlersVerifyCommand(), a.handlersOverheadCommand(), a.handlersAddCommand(), a.handlersSetCommand(), a.handlersRemoveCommand(), a.handlersPublishCommand())
	return cmd
}

func (a *app) listHandlers(ctx context.Context, s *session, wide bool) error {
	set, err := handlers.List(ctx, s.Runtime)
	if err != nil {
		return err
	}
	details, err := adminv1.Handlers(ctx, s.Conn())
	if err != nil && status.Code(err) != codes.Unimplemented { // which another runtime says
		return fmt.Errorf("list handlers: %w", err)
	}
	var list []handlerRow
	for _, h := range set.All() {
		row := handlerRow{Handler: h}
		for i := range details {
			if details[i].Name == h.Name {
				row.Details = &details[i]
			}
		}
		list = append(list, row)
	}
	return a.print(list, func() [][]string {
		rows := [][]string{{"HANDLER", "KIND", "VERSION", "DEFAULT", "STATE", "PATH", "FLAWS", "REASON"}}
		if wide {
			rows = [][]string{{"HANDLER", "KIND", "VERSION", "DEFAULT", "STATE", "VERIFIED", "START P50", "OVERHEAD", "PODS", "FEATURES", "PATH", "FLAWS", "REASON"}}
		}
		for i := range list {
			rows = append(rows, list[i].cells(wide))
		}
		return rows
	})
}

// cells are the columns of one line.
func (h *handlerRow) cells(wide bool) []string {
	state := "Failed"
	switch {
	case h.Details != nil:
		state = h.Details.State
	case h.Ready:
		state = "Ready"
	}
	cells := []string{h.Name, h.Kind, h.Version, yesNo(h.Default), state}
	if d := h.Details; wide && d != nil {
		cells = append(cells, ago(d.VerifiedAt), inMS(d.StartP50MS), size(overheadOf(d)), strconv.Itoa(d.Pods), strings.Join(d.Features, ","))
	} else if wide {
		cells = append(cells, "", "", "", "", "")
	}
	return append(cells, h.Path, flaws(h.Handler), h.Reason)
}

// overheadOf is the memory beside a pod: what was measured of pods, or else what
// the trial has found beside a container.
func overheadOf(h *adminv1.Handler) int64 {
	if o := h.Overhead; o != nil {
		return o.MemoryP99 + o.MonitorMemory
	}
	return h.OverheadBytes
}

func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(t) + " ago"
}

// inMS is a time as people read it; zero is none.
func inMS(ms float64) string {
	if ms == 0 {
		return ""
	}
	return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
}

func (a *app) handlersVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify NAME",
		Short: "Try a runtime handler now, step by step",
		Long: "Try a runtime handler now: each step is printed as it begins. The exit code is 1 if the handler does not\n" +
			"work. One that worked until now is not taken from the pods for a single failure: it is tried again\n" +
			"soon, and counts as failed after three in a row.",
		Args: args("NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.with(cmd.Context(), func(s *session) error { return a.verifyHandler(cmd.Context(), s, names[0]) })
		},
	}
}

func (a *app) verifyHandler(ctx context.Context, s *session, name string) error {
	began := time.Now()
	e, err := adminv1.VerifyHandler(ctx, s.Conn(), adminv1.VerifyRequest{Name: name}, func(step string) {
		_, _ = fmt.Fprintf(a.out, "%8s  %s\n", inMS(float64(time.Since(began).Microseconds())/1000), visible(step))
	})
	if status.Code(err) == codes.Unimplemented {
		err = fmt.Errorf("%s at %s cannot be told to try a handler, only Fairlead can: %w", s.Name, s.Address, errdefs.ErrUnimplemented)
	}
	if err != nil {
		return err
	}
	took := inMS(float64(time.Since(began).Microseconds()) / 1000)
	if !e.Works {
		after := ""
		if e.Handler != nil && e.Handler.State == "Ready" {
			after = "; it worked before and is still offered to pods, and is tried again soon"
		}
		return errors.New("handler " + name + " does not work: " + e.Reason + after)
	}
	_, err = fmt.Fprintf(a.out, "%8s  handler %s works; %s\n", took, name, verified(e.Handler))
	return err
}

// verified says what a trial has measured.
func verified(h *adminv1.Handler) string {
	if h == nil {
		return "it was removed meanwhile"
	}
	features := strings.Join(h.Features, ", ")
	if features == "" {
		features = "none"
	}
	return fmt.Sprintf("a container starts in %s, overhead %s, features: %s", inMS(h.TrialStartMS), size(h.OverheadBytes), features)
}

// flaws says how many are known of a version. The list itself is for -o json.
func flaws(h handlers.Handler) string {
	if len(h.Flaws) == 0 {
		return ""
	}
	return fmt.Sprintf("%d, such as %s", len(h.Flaws), h.Flaws[len(h.Flaws)-1].ID)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
