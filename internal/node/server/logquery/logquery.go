// Package logquery answers questions about a node's logs in the form of KEP-2258: of services, by
// the journal of systemd, or by the files that they have in the folder of logs where they are not
// in that; and of one file.
package logquery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os/exec"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of a query, as a kubelet has them.
const (
	mostServices = 4
	longestName  = 256
	mostLines    = 100_000
	timeLimit    = 30 * time.Second
	waitLimit    = time.Second // for a program that has ended to give its output free
)

// Query is what is asked for: the logs of services, or one file.
type Query struct {
	Services []string
	File     string
	// options are about services in the journal alone.
	options options
}

// options narrow what the journal has. Zero values ask for all.
type options struct {
	since, until, boot, lines, pattern string
}

// Malformed is a query that cannot be read, and Refused one that is not answered. A kubelet
// has the codes 400 and 406 for them.
var (
	ErrMalformed = errors.New("the query cannot be read")
	ErrRefused   = errors.New("the query is not answered")
)

func malformed(field, value, want string) error {
	return fmt.Errorf("%w: %s=%q; want %s", ErrMalformed, field, value, want)
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// safe are the characters of services that are given to the journal.
var safe = regexp.MustCompile(`^[a-zA-Z0-9\-_.:@]+$`)

// Read reads a query: query (which may be there several times), sinceTime and untilTime in
// RFC 3339, tailLines, boot, and pattern. It is nil where nothing is asked.
func Read(values url.Values) (*Query, error) {
	q := &Query{}
	all, asked := values["query"]
	var files []string
	for _, name := range all {
		switch {
		case strings.ContainsAny(name, `/\`):
			files = append(files, strings.ReplaceAll(name, `\`, "/"))
		case strings.TrimSpace(name) != "":
			q.Services = append(q.Services, name)
		}
	}
	if asked && len(files)+len(q.Services) == 0 {
		return nil, malformed("query", strings.Join(all, ","), "the name of a service, or the path of a file")
	}
	if err := q.options.read(values); err != nil {
		return nil, err
	}
	if !asked && q.options == (options{}) {
		return nil, nil
	}
	return q, q.check(files)
}

func (o *options) read(values url.Values) error {
	var since, until time.Time
	for field, at := range map[string]struct {
		time *time.Time
		text *string
	}{"sinceTime": {&since, &o.since}, "untilTime": {&until, &o.until}} {
		text := values.Get(field)
		if text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return malformed(field, text, "a time as 2026-01-02T15:04:05Z")
		}
		*at.time, *at.text = t, t.UTC().Format("2006-01-02 15:04:05")
	}
	for field, n := range map[string]struct {
		text        *string
		least, most int
	}{"boot": {&o.boot, -1 << 31, 0}, "tailLines": {&o.lines, 0, mostLines}} {
		text := values.Get(field)
		if text == "" {
			continue
		}
		value, err := strconv.Atoi(text)
		if err != nil {
			return malformed(field, text, "a number")
		}
		if value < n.least || value > n.most {
			return refused("%s=%d is not from %d to %d", field, value, n.least, n.most)
		}
		*n.text = strconv.Itoa(value)
	}
	if o.since != "" && o.until != "" && since.After(until) {
		return refused("sinceTime is after untilTime")
	}
	o.pattern = values.Get("pattern")
	if _, err := syntax.Parse(o.pattern, syntax.Perl); err != nil {
		return refused("pattern: %v", err)
	}
	return nil
}

func (q *Query) check(files []string) error {
	switch {
	case len(files)+len(q.Services) == 0:
		return refused("options are about a service; name it: query=kubelet")
	case len(files) > 0 && len(q.Services) > 0:
		return refused("it names a file and a service; ask for one of them")
	case len(files) > 1:
		return refused("it names several files; ask for one")
	case len(files) == 1 && q.options != (options{}):
		return refused("options are about services, and it names a file; leave them out")
	case len(q.Services) > mostServices:
		return refused("it names %d services; ask for %d at most", len(q.Services), mostServices)
	}
	for _, s := range q.Services {
		if len(s) > longestName || !safe.MatchString(s) {
			return refused("query=%q is no name of a service: it may have letters, digits and -_.:@, %d at most", s, longestName)
		}
	}
	if len(files) == 1 {
		q.File = files[0]
	}
	return nil
}

// Node is what a node has of logs.
type Node struct {
	// Journalctl is the program of systemd's journal; a node without it has files alone.
	Journalctl string
	// Files are those of the folder of logs.
	Files fs.FS
}

// Copy writes the logs of the services. What goes wrong once something is written is a line of
// the output, as with a kubelet; a service without any log is an error that wraps
// fs.ErrNotExist if nothing was written.
func (n Node) Copy(ctx context.Context, w io.Writer, q *Query) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	counted := &counter{Writer: w}
	known := n.units(ctx)
	inJournal := func(s string) bool { return known[s] || known[s+".service"] }
	if units := slices.DeleteFunc(slices.Clone(q.Services), func(s string) bool { return !inJournal(s) }); len(units) > 0 {
		cmd := n.journal(ctx, q.options.args(units)...)
		cmd.Stdout, cmd.Stderr = counted, counted
		if err := cmd.Run(); err != nil && ctx.Err() != nil {
			return counted.tell(fmt.Errorf("read the journal: %w", context.Cause(ctx)))
		}
	}
	for _, s := range q.Services {
		if inJournal(s) {
			continue
		}
		if q.options != (options{}) {
			return counted.tell(fmt.Errorf("%s is not in the journal, and options do not go with files of logs; leave them out: %w", s, ErrRefused))
		}
		if err := n.file(ctx, counted, s); err != nil {
			return counted.tell(err)
		}
	}
	return nil
}

// units are those that the journal has something of.
func (n Node) units(ctx context.Context) map[string]bool {
	if n.Journalctl == "" {
		return nil
	}
	out, err := n.journal(ctx, "--field", "_SYSTEMD_UNIT").Output()
	if err != nil {
		return nil // they may have files
	}
	all := map[string]bool{}
	for _, line := range strings.Fields(string(out)) {
		all[line] = true
	}
	return all
}

func (n Node) journal(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.Journalctl, args...)
	cmd.WaitDelay = waitLimit
	return cmd
}

func (o options) args(units []string) []string {
	all := []string{"--utc", "--no-pager", "--output=short-precise"}
	for flag, value := range map[string]string{"--since=": o.since, "--until=": o.until, "--lines=": o.lines, "--grep=": o.pattern, "--boot=": o.boot} {
		if value != "" {
			all = append(all, flag+value)
		}
	}
	for _, u := range units {
		all = append(all, "--unit="+u)
	}
	slices.Sort(all)
	return all
}

// file writes the first of the files that a service has.
func (n Node) file(ctx context.Context, w io.Writer, service string) error {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		f, err := n.Files.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", service, err)
		}
		info, err := f.Stat()
		if err != nil || info.IsDir() {
			_ = f.Close()
			continue
		}
		_, err = io.Copy(w, reading(func(p []byte) (int, error) {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			return f.Read(p)
		}))
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", service, err)
		}
		return nil
	}
	return fmt.Errorf("there is no log of %s, neither in the journal nor as a file: %w", service, fs.ErrNotExist)
}

// reading is a reader of a function.
type reading func(p []byte) (int, error)

func (r reading) Read(p []byte) (int, error) { return r(p) }

// counter knows whether something was written.
type counter struct {
	io.Writer
	begun bool
}

func (c *counter) Write(p []byte) (int, error) {
	c.begun = c.begun || len(p) > 0
	return c.Writer.Write(p)
}

// tell makes an error a line of the output, once there is some.
func (c *counter) tell(err error) error {
	if !c.begun {
		return err
	}
	_, _ = fmt.Fprintf(c, "\n%v\n", err)
	return nil
}
