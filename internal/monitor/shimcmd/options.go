package shimcmd

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"

	"fairlead.run/internal/taskapi"
)

// options is the command line: what is the same in each call, and the verb with
// what belongs to it.
type options struct {
	shim     string // the program
	events   string // folder for sockets, with a short path
	settings taskapi.Any
	root     string // a folder for each container is in it
	log      string // file for the error; empty is standard error
	report   int    // descriptor on which a stand-in tells its launcher how it went

	verb          string
	id            string
	bundle        string
	process       string
	pidFile       string
	consoleSocket string
	resources     string
	detach        bool
}

func parse(args []string) (o options, err error) {
	var value string
	f := flags("fairlead-monitor shim")
	f.StringVar(&o.shim, "shim", "", "")
	f.StringVar(&o.events, "events", "", "")
	f.StringVar(&o.settings.Type, "options-type", "", "")
	f.StringVar(&value, "options", "", "")
	f.StringVar(&o.root, "root", "", "")
	f.StringVar(&o.log, "log", "", "")
	f.IntVar(&o.report, "report", 0, "")
	f.String("log-format", "", "") // there is only the one
	f.Bool("systemd-cgroup", false, "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.settings.Value, err = base64.StdEncoding.DecodeString(value); err != nil {
		return o, fmt.Errorf("--options: %w", err)
	}
	if f.NArg() == 0 {
		return o, errors.New("there is no subcommand")
	}
	if o.root == "" || o.events == "" {
		return o, errors.New("--events and --root are needed")
	}
	return o, o.parseVerb(f.Arg(0), f.Args()[1:])
}

func (o *options) parseVerb(verb string, args []string) error {
	o.verb = verb
	f := flags(verb)
	needed := []*string{&o.id}
	switch verb {
	case "run":
		f.StringVar(&o.bundle, "bundle", "", "")
		needed = append(needed, &o.bundle)
	case "exec":
		f.StringVar(&o.process, "process", "", "")
		needed = append(needed, &o.process)
	case "update":
		f.StringVar(&o.resources, "resources", "", "")
		needed = append(needed, &o.resources)
	case "delete":
		f.Bool("force", false, "") // it always ends what lives
	default:
		return fmt.Errorf("there is no subcommand %q", verb)
	}
	if verb == "run" || verb == "exec" {
		f.BoolVar(&o.detach, "detach", false, "")
		f.StringVar(&o.pidFile, "pid-file", "", "")
		f.StringVar(&o.consoleSocket, "console-socket", "", "")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	o.id = f.Arg(0)
	if o.detach {
		needed = append(needed, &o.pidFile)
	}
	for _, n := range needed {
		if *n == "" {
			return fmt.Errorf("an argument of %s is missing", verb)
		}
	}
	return nil
}

func flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}
