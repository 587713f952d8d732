package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cli/show"
)

// watchObjects shows objects of a kind, and then again each that has changed, until ctx
// ends. One that is gone is shown once more, as it was.
func (a *app) watchObjects(ctx context.Context, wanted []selection) error {
	if a.output == "json" || a.output == "yaml" {
		return usageError{fmt.Errorf("-w shows rows; want -o table, wide or name")}
	}
	for _, o := range wanted {
		if o.Name != wanted[0].Name {
			return usageError{errors.New("-w goes with one kind of objects")}
		}
	}
	c, err := a.machine()
	if err != nil {
		return err
	}
	w := watcher{kind: wanted[0].Kind, options: show.Options{Wide: a.output == "wide"}, names: a.output == "name", to: a.out, seen: map[string]metav1.Object{}, texts: map[string]string{}}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		// What is not there may come.
		groups, _, err := c.find(ctx, wanted)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.show(groups[0].list, time.Now())
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher writes what has changed of objects.
type watcher struct {
	kind    show.Kind
	options show.Options
	names   bool // and nothing else
	to      io.Writer
	seen    map[string]metav1.Object // by name
	texts   map[string]string
	widths  []int // of columns, once the head was written
}

func (w *watcher) show(list []metav1.Object, now time.Time) {
	w.options.Now = now
	there := map[string]bool{}
	var changed []metav1.Object
	for _, o := range list {
		name := show.Name(o.GetNamespace(), o.GetName())
		there[name] = true
		text, err := json.Marshal(o)
		if err == nil && w.texts[name] == string(text) {
			continue
		}
		w.texts[name], w.seen[name] = string(text), o
		changed = append(changed, o)
	}
	for name, o := range w.seen {
		if !there[name] {
			delete(w.seen, name)
			delete(w.texts, name)
			changed = append(changed, o)
		}
	}
	if w.names {
		for _, o := range changed {
			_, _ = fmt.Fprintf(w.to, "%s/%s\n", w.kind.Singular(), show.Name(o.GetNamespace(), o.GetName()))
		}
		return
	}
	rows := w.kind.Table(changed, w.options)
	if w.widths == nil && len(changed) > 0 {
		w.widths = make([]int, len(rows[0]))
		for _, row := range rows {
			for i, cell := range row {
				w.widths[i] = max(w.widths[i], len(cell))
			}
		}
		w.write(rows[0])
	}
	for _, row := range rows[1:] {
		w.write(row)
	}
}

// write writes a row below those before it.
func (w *watcher) write(row []string) {
	var line strings.Builder
	for i, cell := range row {
		if cell == "" {
			cell = "-"
		}
		fmt.Fprintf(&line, "%-*s", w.widths[i]+3, oneLine(cell))
	}
	_, _ = fmt.Fprintln(w.to, strings.TrimRight(line.String(), " "))
}
