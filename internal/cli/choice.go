package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// choice is how people choose objects for a command: by their names, by labels, or all.
type choice struct {
	namespace, selector string
	all                 bool
}

func (o *choice) addTo(cmd *cobra.Command) {
	namespaceFlag(cmd, &o.namespace)
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "those of the kind with such labels, as app=web,tier!=back")
	cmd.Flags().BoolVar(&o.all, "all", false, "all of the kind in the namespace")
}

// chosen are the objects that are named, or those that there are now of what is chosen
// otherwise. Each has its name and namespace.
func (a *app) chosen(cmd *cobra.Command, list []string, by choice) ([]selection, error) {
	if by.selector == "" && !by.all {
		return named(cmd, list, by.namespace)
	}
	if by.selector != "" && by.all {
		return nil, usageError{errors.New("-l and --all choose both; give one of them")}
	}
	kinds, err := selections(cmd, list, by.namespace)
	if err != nil {
		return nil, err
	}
	if by.all && kinds[0].name != "" {
		return nil, usageError{errors.New("--all and a name choose both; give one of them")}
	}
	if kinds, err = narrowed(kinds, by.selector); err != nil {
		return nil, usageError{err}
	}
	c, err := a.machine()
	if err != nil {
		return nil, err
	}
	var out []selection
	for _, k := range kinds {
		there, err := c.objects(cmd.Context(), k.Kind)
		if err != nil {
			return nil, err
		}
		for _, o := range there {
			if k.has(o) {
				out = append(out, selection{Kind: k.Kind, namespace: o.GetNamespace(), name: o.GetName()})
			}
		}
	}
	return out, nil
}

// nothingChosen is why a command has nothing to do.
func nothingChosen(list []string) error {
	return fmt.Errorf("fairlead up keeps none of these; see: fairlead get %s -A", list[0])
}
