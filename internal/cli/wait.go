package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cli/show"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/machine"
	"fairlead.run/internal/node/manifest"
)

// lookAgain is how often a command that waits asks.
const lookAgain = 250 * time.Millisecond

// patience is how long a command waits.
type patience struct {
	wait    bool
	timeout time.Duration // zero for as long as it takes
}

func (p *patience) addTimeout(cmd *cobra.Command, otherwise time.Duration) {
	cmd.Flags().DurationVar(&p.timeout, "timeout", otherwise, "how long to wait at most, 0s for as long as it takes")
}

// until looks until nothing is missing. The error of one who has waited long enough says
// what is missing yet.
func (p patience) until(ctx context.Context, look func(context.Context) (missing string, err error)) error {
	var over <-chan time.Time
	if p.timeout > 0 {
		over = time.After(p.timeout)
	}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		missing, err := look(ctx)
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-again.C:
		case <-over:
			return fmt.Errorf("after %s: %s: %w", p.timeout, oneLine(missing), errdefs.ErrDeadline)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *app) waitCommand() *cobra.Command {
	var what string
	var by choice
	p := patience{wait: true}
	cmd := &cobra.Command{
		Use:   "wait {KIND NAME... | KIND/NAME... | KIND -l LABELS | KIND --all}",
		Short: "Wait until objects that fairlead up keeps are ready, or gone",
		Long: "Wait until objects are as --for says:\n\n" +
			"  ready                 pods are ready or have completed, other objects have all of such pods, and Jobs\n" +
			"                        have completed\n" +
			"  delete                the object is gone, and of a pod all that it had\n" +
			"  condition=TYPE[=VALUE]  its status has such a condition, with the value True if none is given\n\n" +
			"Of a Deployment condition=Available is as ready. What has failed for good is an error at once.",
		Example: "  fairlead wait deploy/web --timeout 2m\n  fairlead wait pods -l app=web --for condition=Ready\n  fairlead wait job/sum --for condition=Complete\n  fairlead wait pod web --for delete",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			look, err := lookFor(what)
			if err != nil {
				return usageError{err}
			}
			wanted, err := a.chosen(cmd, list, by)
			if err != nil {
				return err
			}
			if len(wanted) == 0 && what != "delete" {
				return nothingChosen(list)
			}
			c, err := a.machine()
			if err != nil {
				return err
			}
			return p.until(cmd.Context(), func(ctx context.Context) (string, error) {
				for _, o := range wanted {
					if missing, err := look(ctx, c, o); err != nil || missing != "" {
						return missing, err
					}
				}
				return "", nil
			})
		},
	}
	cmd.Flags().StringVar(&what, "for", "ready", "ready, delete or condition=TYPE[=VALUE]")
	p.addTimeout(cmd, 30*time.Second)
	by.addTo(cmd)
	return cmd
}

// named are objects of which each has a name, in a namespace.
func named(cmd *cobra.Command, list []string, namespace string) ([]selection, error) {
	out, err := selections(cmd, list, namespace)
	if err != nil {
		return nil, err
	}
	for i := range out {
		o := &out[i]
		if o.name == "" {
			return nil, usageError{fmt.Errorf("say which %s: want %s; see %s --help", o.Plural(), usage(cmd), cmd.CommandPath())}
		}
		if before, after, both := strings.Cut(o.name, "/"); both {
			o.namespace, o.name = before, after
		}
		if o.Unspaced {
			o.namespace = ""
		}
	}
	return out, nil
}

func (s selection) single() manifest.Single {
	return manifest.Single{Kind: s.Name, Key: manifest.Key{Namespace: s.namespace, Name: s.name}}
}

// looker says what is missing of an object yet.
type looker func(ctx context.Context, c *machineClient, o selection) (string, error)

func lookFor(what string) (looker, error) {
	condition, isCondition := strings.CutPrefix(what, "condition=")
	switch {
	case what == "ready", strings.EqualFold(condition, "ready"), strings.EqualFold(condition, "ready=true"):
		return func(ctx context.Context, c *machineClient, o selection) (string, error) {
			return c.unready(ctx, o.single())
		}, nil
	case what == "delete":
		return func(ctx context.Context, c *machineClient, o selection) (string, error) { return c.still(ctx, o) }, nil
	case isCondition:
		kind, value, _ := strings.Cut(condition, "=")
		return func(ctx context.Context, c *machineClient, o selection) (string, error) {
			if o.Name == "Deployment" && strings.EqualFold(kind, "available") && (value == "" || strings.EqualFold(value, "true")) {
				return c.unready(ctx, o.single())
			}
			return c.lacks(ctx, o, kind, value)
		}, nil
	}
	return nil, fmt.Errorf("--for %q is not one of ready, delete, condition=TYPE[=VALUE]", what)
}

// unready asks what an object lacks to be ready. One that cannot be any more is an error.
func (c *machineClient) unready(ctx context.Context, o manifest.Single) (string, error) {
	path := "/objects/" + url.PathEscape(o.Kind) + "/" + url.PathEscape(o.Name) + "/readiness?namespace=" + url.QueryEscape(o.Namespace)
	var is machine.Readiness
	if err := c.get(ctx, http.MethodGet, path, nil, &is); err != nil {
		return "", err
	}
	if is.Failed {
		return "", errors.New(oneLine(is.Missing))
	}
	return is.Missing, nil
}

func (o selection) among(all []metav1.Object) metav1.Object {
	if i := slices.IndexFunc(all, func(x metav1.Object) bool { return o.has(x) }); i >= 0 {
		return all[i]
	}
	return nil
}

func (o selection) String() string { return o.Singular() + " " + show.Name(o.namespace, o.name) }

func (c *machineClient) still(ctx context.Context, o selection) (string, error) {
	if o.Name == "Pod" { // one that begins, or is to, is in no list yet
		present, err := c.present(ctx)
		for _, name := range present {
			if name == o.namespace+"/"+o.name {
				return o.String() + " is still there", nil
			}
		}
		return "", err
	}
	all, err := c.objects(ctx, o.Kind)
	if err != nil || o.among(all) == nil {
		return "", err
	}
	return o.String() + " is still there", nil
}

// lacks says whether a condition of an object is another one.
func (c *machineClient) lacks(ctx context.Context, o selection, kind, value string) (string, error) {
	all, err := c.objects(ctx, o.Kind)
	if err != nil {
		return "", err
	}
	found := o.among(all)
	if found == nil {
		return "", noObject(o, all)
	}
	text, err := json.Marshal(found)
	if err != nil {
		return "", err
	}
	var of struct {
		Status struct{ Conditions []metav1.Condition }
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return "", err
	}
	if value == "" {
		value = "True"
	}
	for _, is := range of.Status.Conditions {
		switch {
		case !strings.EqualFold(is.Type, kind):
		case strings.EqualFold(string(is.Status), value):
			return "", nil
		default:
			return fmt.Sprintf("%s has condition %s=%s: %s %s", o, is.Type, is.Status, is.Reason, is.Message), nil
		}
	}
	return fmt.Sprintf("%s has no condition %s", o, kind), nil
}

// gone waits until pods are gone.
func (c *machineClient) gone(ctx context.Context, p patience, pods map[types.UID]bool) error {
	return p.until(ctx, func(ctx context.Context) (string, error) {
		present, err := c.present(ctx)
		if err != nil {
			return "", err
		}
		for uid, pod := range present {
			if pods[uid] {
				namespace, name, _ := strings.Cut(pod, "/")
				return "pod " + podName(namespace, name) + " has not ended yet", nil
			}
		}
		return "", nil
	})
}

// present are the names of the pods that there are or may be, with their namespaces, by UID.
func (c *machineClient) present(ctx context.Context) (out map[types.UID]string, err error) {
	return out, c.get(ctx, http.MethodGet, "/present", nil, &out)
}
