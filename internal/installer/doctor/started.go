package doctor

import (
	"fmt"
	"path/filepath"

	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/profile"
)

// started has the files looked at that the runtime is started with, which are not always
// those of the distribution. What the user has said comes before it.
func (e *exam) started() error {
	start, err := e.start()
	if err == nil {
		e.search, e.beside = filepath.SplitList(start.Env["PATH"]), filepath.Dir(start.Args[0])
	}
	switch {
	case e.Override.Config != "":
		return nil
	case err != nil:
		e.blind = err
		return nil
	}
	file, said := e.dist.Config(start)
	e.told = said && file != "" && !e.dist.Containerd.Generated
	// Nothing is written, so that it does not matter whether it could be.
	e.dist, err = e.dist.StartedAs(profile.Process{Start: start, Write: func(string) error { return nil }})
	return err
}

// start is how the runtime's process was started or, if there is none to be seen, how
// systemd would start it.
func (e *exam) start() (profile.Start, error) {
	pid, err := cri.Client{Socket: e.path(e.dist.Socket)}.PID()
	if err == nil {
		var s profile.Start
		if s, err = profile.ReadStart(e.proc, pid); err == nil {
			return s, nil
		}
	}
	unit, other := e.dist.Unit(e.path("/"), "")
	if other == nil {
		var s profile.Start
		if s, other = e.dist.UnitStart(e.path("/"), unit); other == nil {
			return s, nil
		}
	}
	return profile.Start{}, fmt.Errorf("%w; %w", err, other)
}

// read says which files there are, and what of those that are.
func (e *exam) read(main string, files int, what string) {
	runtime := e.dist.Runtime
	if runtime == "crio" {
		runtime = "CRI-O"
	}
	switch {
	case e.told && !exists(e.real(main)):
		e.add(Finding{Error, "config", main, runtime + " is started with it, and it is not there; " + runtime + " will not start again", "put the file back, or correct --config in the unit of " + runtime})
	case files > 0:
		e.add(Finding{OK, "config", main, what, ""})
	case e.blind != nil:
		e.add(Finding{Warning, "config", main, "it is not there, and it is not seen which file " + runtime + " was started with: " + e.blind.Error(), "start " + runtime + ", look from the host's PID namespace, or name the file by --cri-config"})
	default:
		e.add(Finding{OK, "config", main, "it is not there, so that " + runtime + " goes by what it has built in", ""})
	}
}
