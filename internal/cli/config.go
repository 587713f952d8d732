package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/configimport"
	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/errdefs"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work on configuration files", Args: args(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.configImportCommand())
	return cmd
}

// importFlags are those of config import.
type importFlags struct {
	source configimport.Source
	output string
	report string
	force  bool
}

func (a *app) configImportCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import [PATH...]",
		Short: "Make a configuration from containerd's or CRI-O's",
		Long: "Make a configuration of Fairlead's from that of containerd or CRI-O: runtime handlers, the default one,\n" +
			"mirrors of registries, the CNI folders, the driver of cgroups and more. PATH is containerd's config.toml,\n" +
			"with what it imports, or CRI-O's crio.conf and folders like crio.conf.d; without one, what is in the usual\n" +
			"places is read.\n\n" +
			"What is made goes to standard output, or with -o to files: config.toml, and certs.d for registries. The\n" +
			"report on standard error names each key that has no counterpart, with its file, line and why, and each\n" +
			"that does not mean quite the same here. Keys that have the value that they would have anyway are not in it.\n\n" +
			"Nothing is asked of a daemon and no daemon is changed.",
		Example: "fairlead config import --from containerd\nfairlead config import -o /etc/fairlead /etc/containerd/config.toml",
		RunE: func(_ *cobra.Command, paths []string) error {
			f.source.Paths = paths
			return a.importConfig(f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.source.Runtime, "from", "", "containerd or crio (default: whose files these are, or which is configured here)")
	flags.StringArrayVar(&f.source.Registries, "registries", nil, "with CRI-O: registries.conf or a folder of such; may be given more than once (default those in /etc/containers, if there is no PATH)")
	flags.StringVarP(&f.output, "output", "o", "", "folder to write into, for example /etc/fairlead (default: standard output)")
	flags.StringVar(&f.report, "report", "table", "form of the report: table, json or yaml")
	flags.BoolVar(&f.force, "force", false, "replace files that are there already")
	return cmd
}

func (a *app) importConfig(f importFlags) error {
	switch f.report {
	case "table", "json", "yaml":
	default:
		return usageError{fmt.Errorf("--report %s is not one of table, json, yaml", f.report)}
	}
	folder := f.output
	if folder == "" {
		folder = "/etc/fairlead"
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	f.source.Folder = folder
	result, err := configimport.Import(f.source)
	if err != nil {
		return err
	}
	if f.output == "" {
		err = a.showFiles(folder, result.Files)
	} else {
		err = a.writeImport(folder, f.force, result)
	}
	return errors.Join(err, a.reportImport(f.report, result))
}

// showFiles prints all files, each but the first below its path.
func (a *app) showFiles(folder string, files []plan.File) error {
	for i, file := range files {
		if i > 0 {
			if _, err := fmt.Fprintf(a.out, "\n# ---- %s\n", filepath.Join(folder, file.Path)); err != nil {
				return err
			}
		}
		if _, err := a.out.Write(file.Data); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) writeImport(folder string, force bool, result *configimport.Result) error {
	paths, err := result.Write(folder, force)
	if errors.Is(err, errdefs.ErrAlreadyExists) {
		return fmt.Errorf("nothing was written, as there is already %w; --force replaces it", err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "fairlead: wrote %s\n", strings.Join(paths, ", "))
	return err
}

// reportImport tells on standard error what did not go over as it was.
func (a *app) reportImport(form string, result *configimport.Result) error {
	var text []byte
	var err error
	switch form {
	case "json":
		text, err = json.MarshalIndent(result, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(result)
	default:
		return a.importTable(result)
	}
	if err == nil {
		_, err = a.err.Write(text)
	}
	return err
}

func (a *app) importTable(result *configimport.Result) error {
	if len(result.Findings) == 0 {
		_, err := fmt.Fprintf(a.err, "fairlead: read %s; all of it has a counterpart\n", strings.Join(result.Read, ", "))
		return err
	}
	rows := [][]string{{"WHERE", "KEY", "EFFECT", "WHY"}}
	for _, f := range result.Findings {
		where := f.File
		if f.Line > 0 {
			where += ":" + strconv.Itoa(f.Line)
		}
		rows = append(rows, []string{visible(where), visible(f.Key), string(f.Effect), strings.ReplaceAll(visible(f.Why), "\n", "; ")})
	}
	return table(a.err, rows)
}
