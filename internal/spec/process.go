package spec

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"fairlead.run/internal/inroot"
	"fairlead.run/internal/spec/environ"
	"fairlead.run/internal/spec/hostile"
	"fairlead.run/internal/spec/signals"
)

// defaultPath is what a process gets that nobody gave a PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// process merges the request's command and args with the image's entrypoint and
// cmd: a command replaces both of the image's, args alone only its cmd.
func (b *build) process(context.Context) error {
	p, img := b.container().Process, b.req.Image
	command, args := p.Command, p.Args
	if len(command) == 0 {
		command = img.Entrypoint
		if len(command) == 1 && command[0] == "" { // how builders write "none"
			command = nil
		}
		if len(args) == 0 {
			args = img.Cmd
		}
	}
	all := slices.Concat(command, args)
	if len(all) == 0 {
		return invalid("command", "is missing: neither the request nor image %q says what to run", b.container().Image.Image)
	}
	if all[0] == "" {
		return invalid("command[0]", "is empty")
	}
	for i, a := range all {
		if strings.ContainsRune(a, 0) {
			return invalid("command and args", "have a zero byte in word %d", i)
		}
	}
	b.spec.Process.Args = all
	return nil
}

// environment is a PATH, the host name and a terminal type, the image's
// variables over them, and the request's over those.
func (b *build) environment(context.Context) error {
	name, err := b.hostname()
	if err != nil {
		return err
	}
	env := environ.New("PATH="+defaultPath, "HOSTNAME="+name)
	if b.container().Process.TTY {
		env.Set("TERM", "xterm")
	}
	if bad := env.Add(b.req.Image.Env); len(bad) > 0 {
		b.warn("%d image variables, such as %.100q, are not of the form NAME=value and are left out", len(bad), bad[0])
	}
	for i, e := range b.container().Process.Env {
		switch {
		case e.Name == "" || strings.ContainsAny(e.Name, "=\x00"):
			return invalid(fmt.Sprintf("envs[%d].key", i), "%q is empty, or has a = or a zero byte in it", e.Name)
		case strings.ContainsRune(e.Value, 0):
			return invalid(fmt.Sprintf("envs[%d].value", i), "of %s has a zero byte in it", e.Name)
		}
		env.Set(e.Name, e.Value)
	}
	b.spec.Process.Env = env.List
	return hostile.Arguments(b.spec.Process.Args, env.List)
}

// otherProcess matches folders by which a process could step out of its root:
// the open files and roots of processes.
var otherProcess = regexp.MustCompile(`^/proc/[^/]+/(task/[^/]+/)?(fd|cwd|root)(/|$)`)

// kernelMounts are where mounts hide the image's own files, so that a folder
// made in the image would never be seen.
var kernelMounts = []string{"/proc", "/sys", "/dev"}

// workingDir is the request's, or the image's, or the root. It is made if the
// image has none, as Docker does.
func (b *build) workingDir(context.Context) error {
	dir := b.container().Process.WorkingDir
	if dir != "" && !path.IsAbs(dir) {
		return invalid("working_dir", "%q is not an absolute path", dir)
	}
	if dir == "" {
		dir = b.req.Image.WorkingDir
	}
	dir = path.Join("/", dir)
	if strings.ContainsRune(dir, 0) {
		return invalid("working_dir", "%q has a zero byte in it", dir)
	}
	if otherProcess.MatchString(dir) {
		return invalid("working_dir", "%s leads out of the container", dir)
	}
	b.spec.Process.Cwd = dir
	if slices.ContainsFunc(kernelMounts, func(m string) bool { return under(dir, m) }) {
		return nil
	}
	for _, m := range b.container().Mounts {
		if under(dir, path.Clean(m.ContainerPath)) {
			return nil // it is in the mount, where the runtime makes it
		}
	}
	uid, gid := b.pod().Root()
	if err := inroot.MkdirAll(b.req.Rootfs, dir, inroot.Folder{Mode: 0o755, UID: uid, GID: gid}); err != nil {
		return fmt.Errorf("working_dir %s: %w", dir, err)
	}
	return nil
}

// under says whether p is dir or below it. Both are clean.
func under(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// signal resolves the stop signal. The request's has to be right; an image's
// that nobody understands is SIGTERM.
func (b *build) signal(context.Context) error {
	b.stopSignal = "SIGTERM"
	if want := b.container().StopSignal; want != "" {
		sig, ok := signals.Name(want)
		if !ok {
			return invalid("stop_signal", "%q is no signal", want)
		}
		b.stopSignal = sig
		return nil
	}
	if want := b.req.Image.StopSignal; want != "" {
		if sig, ok := signals.Name(want); ok {
			b.stopSignal = sig
		} else {
			b.warn("the image's stop signal %.100q is no signal; using SIGTERM", want)
		}
	}
	return nil
}
