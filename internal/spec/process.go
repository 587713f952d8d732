package spec

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/inroot"
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
	env := newEnv("PATH="+defaultPath, "HOSTNAME="+name)
	if b.container().Process.TTY {
		env.set("TERM", "xterm")
	}
	for _, e := range b.req.Image.Env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.ContainsRune(e, 0) {
			b.warn("image variable %q is not of the form NAME=value and is left out", e)
			continue
		}
		env.set(name, value)
	}
	for i, e := range b.container().Process.Env {
		switch {
		case e.Name == "" || strings.ContainsAny(e.Name, "=\x00"):
			return invalid(fmt.Sprintf("envs[%d].key", i), "%q is empty, or has a = or a zero byte in it", e.Name)
		case strings.ContainsRune(e.Value, 0):
			return invalid(fmt.Sprintf("envs[%d].value", i), "of %s has a zero byte in it", e.Name)
		}
		env.set(e.Name, e.Value)
	}
	b.spec.Process.Env = env.list
	return nil
}

// env is a list of variables, each there once.
type env struct {
	list  []string
	index map[string]int
}

func newEnv(first ...string) *env {
	e := &env{index: map[string]int{}}
	for _, f := range first {
		name, value, _ := strings.Cut(f, "=")
		e.set(name, value)
	}
	return e
}

func (e *env) set(name, value string) {
	if i, ok := e.index[name]; ok {
		e.list[i] = name + "=" + value
		return
	}
	e.index[name] = len(e.list)
	e.list = append(e.list, name+"="+value)
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
	if err := inroot.MkdirAll(b.req.Rootfs, dir, 0o755); err != nil {
		return fmt.Errorf("working_dir %s: %w", dir, err)
	}
	return nil
}

// under says whether p is dir or below it. Both are clean.
func under(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// The real-time signals that programs may use; the C library keeps 32 and 33.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// signal resolves the stop signal. The request's has to be right; an image's
// that nobody understands is SIGTERM.
func (b *build) signal(context.Context) error {
	b.stopSignal = "SIGTERM"
	if want := b.container().StopSignal; want != "" {
		sig, ok := signalName(want)
		if !ok {
			return invalid("stop_signal", "%q is no signal", want)
		}
		b.stopSignal = sig
		return nil
	}
	if want := b.req.Image.StopSignal; want != "" {
		if sig, ok := signalName(want); ok {
			b.stopSignal = sig
		} else {
			b.warn("the image's stop signal %q is no signal; using SIGTERM", want)
		}
	}
	return nil
}

// otherNames are the CRI's second names for signals.
var otherNames = map[string]string{"SIGCLD": "SIGCHLD", "SIGIOT": "SIGABRT", "SIGPOLL": "SIGIO"}

// signalName understands "15", "TERM", "SIGTERM", "RTMIN+3" and the CRI's
// "SIGRTMINPLUS3", and gives the usual form of it.
func signalName(s string) (string, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		if n >= sigRTMin && n <= sigRTMax {
			return realTime(n), true
		}
		name := unix.SignalName(unix.Signal(n))
		return name, name != ""
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if other, ok := otherNames[name]; ok {
		return other, true
	}
	if unix.SignalNum(name) != 0 {
		return unix.SignalName(unix.SignalNum(name)), true
	}
	name = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
	base, offset := sigRTMin, strings.TrimPrefix(name, "SIGRTMIN")
	if strings.HasPrefix(name, "SIGRTMAX") {
		base, offset = sigRTMax, strings.TrimPrefix(name, "SIGRTMAX")
	}
	if offset == name {
		return "", false
	}
	n := 0
	if offset != "" {
		var err error
		if n, err = strconv.Atoi(offset); err != nil || offset[0] != '+' && offset[0] != '-' {
			return "", false
		}
	}
	if n += base; n < sigRTMin || n > sigRTMax {
		return "", false
	}
	return realTime(n), true
}

// realTime counts from the nearer end, as the CRI does.
func realTime(n int) string {
	switch {
	case n == sigRTMin:
		return "SIGRTMIN"
	case n == sigRTMax:
		return "SIGRTMAX"
	case n-sigRTMin <= 15:
		return "SIGRTMIN+" + strconv.Itoa(n-sigRTMin)
	}
	return "SIGRTMAX-" + strconv.Itoa(sigRTMax-n)
}
