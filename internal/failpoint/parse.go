package failpoint

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

type kind int

const (
	kill kind = iota
	fail
	sleep
	wait
)

type action struct {
	kind  kind
	sleep time.Duration
	file  string // that wait waits for
	nth   int    // 1 is the first hit; 0 means every hit
	once  string // a file; see the package's doc
}

// arm is an action and how often its place was passed so far.
type arm struct {
	action
	hits int
}

func parse(spec string, known []string) (map[string]*arm, error) {
	armed := map[string]*arm{}
	if strings.TrimSpace(spec) == "" {
		return armed, nil
	}
	for item := range strings.SplitSeq(spec, ",") {
		name, what, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			return nil, fmt.Errorf("failpoint %q: want name=action", item)
		}
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("failpoint %q does not exist in this program; there are: %s", name, list(known))
		}
		if armed[name] != nil {
			return nil, fmt.Errorf("failpoint %q is named twice", name)
		}
		act, err := parseAction(what)
		if err != nil {
			return nil, fmt.Errorf("failpoint %q: %w", name, err)
		}
		armed[name] = &arm{action: act}
	}
	return armed, nil
}

func parseAction(what string) (action, error) {
	var act action
	what, once, limited := strings.Cut(what, "!")
	if limited && !filepath.IsAbs(once) {
		return act, fmt.Errorf("%q after ! is not the absolute path of a file", once)
	}
	act.once = once
	what, nth, counted := strings.Cut(what, "@")
	if counted {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return act, fmt.Errorf("%q is not the number of a hit, want 1 or more", nth)
		}
		act.nth = n
	}
	verb, arg, _ := strings.Cut(what, ":")
	switch verb {
	case "kill", "error":
		if arg != "" {
			return act, fmt.Errorf("%s takes no argument, got %q", verb, arg)
		}
		if verb == "error" {
			act.kind = fail
		}
	case "sleep":
		d, err := time.ParseDuration(arg)
		if err != nil || d <= 0 {
			return act, fmt.Errorf("sleep needs a duration such as sleep:1s, got %q", arg)
		}
		act.kind, act.sleep = sleep, d
	case "wait":
		if !filepath.IsAbs(arg) {
			return act, fmt.Errorf("wait needs the absolute path of a file, got %q", arg)
		}
		act.kind, act.file = wait, arg
	default:
		return act, fmt.Errorf("%q is not an action, want kill, error, sleep:DURATION or wait:FILE", what)
	}
	return act, nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
