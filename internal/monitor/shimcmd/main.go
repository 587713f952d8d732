package shimcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/taskapi"
)

// How long a shim may take for what it is asked. Starting it and its first
// container may take a virtual machine's boot; the monitor allows two minutes.
const (
	bootLimit   = 30 * time.Second
	createLimit = 40 * time.Second
	startLimit  = 40 * time.Second
	callLimit   = 5 * time.Second // anything else
)

// Main runs the program with the arguments after "shim" and returns its exit code.
func Main(args []string) int {
	o, err := parse(args)
	if err == nil {
		err = failpoint.Enable(os.Getenv(failpoint.ShimEnv))
	}
	if err == nil && o.report != 0 {
		return o.standIn() // it tells its launcher
	}
	if err == nil {
		err = o.do(context.Background(), args)
	}
	if err == nil {
		return 0
	}
	o.complain(err)
	return 1
}

// do carries out the verb.
func (o *options) do(ctx context.Context, args []string) error {
	switch {
	case o.verb == "update":
		return o.update(ctx)
	case o.verb != "delete" && o.detach:
		return o.launch(args)
	case o.verb != "delete":
		return o.foreground(ctx)
	}
	return o.remove(ctx)
}

// complain writes the error as runtimes do: a line of JSON.
func (o *options) complain(err error) {
	line, _ := json.Marshal(map[string]string{"level": "error", "msg": message(err)}) // strings always can
	out := os.Stderr
	if o.log != "" {
		if f, err := os.OpenFile(o.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
			defer f.Close()
			out = f
		}
	}
	fmt.Fprintf(out, "%s\n", line)
}

// message is an error in the words by which the callers of runtimes know some.
func message(err error) string {
	var refusal *taskapi.Refusal
	if errors.As(err, &refusal) && refusal.Message != "" {
		// What the runtime below said, without what was called for it.
		return refusal.Message
	}
	return err.Error()
}

// update gives a container the limits of a file.
func (o *options) update(ctx context.Context) error {
	r, err := o.record(o.id)
	if err != nil {
		return err
	}
	resources, err := os.ReadFile(o.resources)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return r.Update(ctx, o.id, resources)
}

// record is that of a container. One that there is none of is said as runc does.
func (o *options) record(id string) (taskapi.Record, error) {
	r, err := taskapi.ReadRecord(o.root, id)
	if errors.Is(err, errdefs.ErrNotFound) {
		return r, errNoContainer(id)
	}
	return r, err
}

func errNoContainer(id string) error { return fmt.Errorf("container %s does not exist", id) }

// IsPublish tells whether the arguments are those with which a shim runs a
// program to tell of an event.
func IsPublish(args []string) bool {
	return slices.Contains(args, "publish") && slices.Contains(args, "--topic")
}

// Publish is that program. Events tell nothing that is not known otherwise; who
// brings one must be able to.
func Publish() int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
