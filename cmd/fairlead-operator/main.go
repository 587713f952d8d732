// Command fairlead-operator is what fairlead operator runs: the controllers that bring
// container runtimes to the nodes of a cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"fairlead.run/internal/operator"
	"fairlead.run/internal/operator/options"
)

func main() {
	var o options.Options
	flags := pflag.NewFlagSet(options.Program, pflag.ContinueOnError)
	o.Register(flags)
	err := flags.Parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("it takes no arguments, and was given %q", flags.Args())
	}
	if err == nil {
		err = o.Validate()
	}
	if err != nil {
		fail(err, 2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = operator.Main(ctx, o)
	stop()
	if err != nil {
		fail(err, 1)
	}
}

func fail(err error, code int) {
	_, _ = fmt.Fprintf(os.Stderr, "fairlead operator: %v\n", err)
	os.Exit(code)
}
