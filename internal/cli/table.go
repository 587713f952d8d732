package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/cli/show"
	"fairlead.run/internal/node/foreground"
)

// outputFlag adds -o.
func (a *app) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", "table", "table, json or yaml")
}

// print shows a value as -o says. The table's rows are made by rows; the first
// is the heading.
func (a *app) print(v any, rows func() [][]string) error {
	switch a.output {
	case "json":
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case "yaml":
		data, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = a.out.Write(data)
		return err
	case "table":
		return table(a.out, rows())
	}
	return usageError{fmt.Errorf("-o %s is not one of table, json, yaml", a.output)}
}

// checkOutput refuses a wrong -o before anything is done.
func (a *app) checkOutput() error {
	switch a.output {
	case "table", "json", "yaml":
		return nil
	}
	return usageError{fmt.Errorf("-o %s is not one of table, json, yaml", a.output)}
}

// table writes the rows in one piece, so that nothing comes between where
// logs go to the same place.
func table(w io.Writer, rows [][]string) error {
	var text bytes.Buffer
	t := tabwriter.NewWriter(&text, 0, 4, 3, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = oneLine(cell); cell == "" {
				row[i] = "-"
			}
		}
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// statusTable shows the pods of a run.
func (a *app) statusTable(w io.Writer, list []foreground.Status) {
	rows := [][]string{{"POD", "CLASS", "HANDLER", "ADDRESS", "STATE", "READY"}}
	for _, s := range list {
		rows = append(rows, []string{podName(s.Namespace, s.Name), s.Class, s.Handler, strings.Join(s.Addresses, ","), string(s.Phase), fmt.Sprintf("%d/%d", s.Ready, s.Total)})
	}
	_ = table(w, rows)
}

// podName leaves the default namespace out.
func podName(namespace, name string) string {
	if namespace == "default" || namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// age is a time span as people read it.
func age(since time.Time) string {
	if since.IsZero() || since.Unix() <= 0 {
		return ""
	}
	return show.Age(time.Since(since))
}

// size is a number of bytes as people read it.
func size(n int64) string {
	const units = "KMGT"
	if n < 1000 {
		return fmt.Sprintf("%dB", n)
	}
	v, u := float64(n)/1000, 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	return fmt.Sprintf("%.1f%cB", v, units[u])
}
