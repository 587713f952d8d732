// Command chart works with the Helm chart of Fairlead by Helm's own library: it
// renders the plain manifests from it, looks it over, and packs it. It is no part
// of Fairlead and has a module of its own, so that Fairlead needs nothing of Helm's.
//
//	chart [-top FOLDER] manifests            write deploy/webhook and the like, and docs/rbac.md
//	chart [-top FOLDER] lint                 what helm lint --strict says
//	chart [-top FOLDER] render [VALUES...]   print what helm template does
//	chart [-top FOLDER] pack VERSION FOLDER  write an archive for helm install
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

var errUsage = errors.New("usage: chart [-top FOLDER] manifests | lint | render [VALUES...] | pack VERSION FOLDER")

func main() {
	top := flag.String("top", "../..", "top of the project")
	flag.Parse()
	// Helm tells of every link in the chart. They are meant to be there.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(context.Background(), *top, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, top string, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	folder := filepath.Join(top, "deploy/charts/fairlead")
	switch command, rest := args[0], args[1:]; {
	case command == "manifests" && len(rest) == 0:
		return writeManifests(ctx, top, folder)
	case command == "lint" && len(rest) == 0:
		return lintAll(folder)
	case command == "render":
		return printRendered(ctx, folder, rest)
	case command == "pack" && len(rest) == 2:
		return pack(folder, rest[0], rest[1])
	}
	return errUsage
}
