package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/handlers"
)

func (a *app) handlersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "handlers",
		Short: "List the runtime handlers of this machine, and why one does not work",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(s *session) error {
				set, err := handlers.List(cmd.Context(), s.Runtime)
				if err != nil {
					return err
				}
				list := set.All()
				return a.print(list, func() [][]string {
					rows := [][]string{{"HANDLER", "KIND", "VERSION", "DEFAULT", "READY", "PATH", "FLAWS", "REASON"}}
					for _, h := range list {
						rows = append(rows, []string{h.Name, h.Kind, h.Version, yesNo(h.Default), yesNo(h.Ready), h.Path, flaws(h), h.Reason})
					}
					return rows
				})
			})
		},
	}
	a.outputFlag(cmd)
	return cmd
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
