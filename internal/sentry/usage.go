package sentry

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fairlead.run/internal/errdefs"
)

// Usage is what one container uses, as the sandbox's own kernel counts it. A value
// that it does not tell is nil.
type Usage struct {
	CPU, User, System *uint64 // processor time in ns: all of it, outside and in that kernel
	Memory            *uint64 // bytes, its page cache included
	Threads           *uint64
}

// controlFile has the names that the sandbox reads.
type controlFile struct {
	Controller string `json:"controller"`
	Path       string `json:"path"`
	Name       string `json:"name"`
}

type readArg struct {
	File controlFile `json:"file"`
}

// usageFiles are the files of a container's cgroup inside the sandbox. It has
// those of version 1, or those of version 2 if it was started with
// --in-sandbox-cgroup=v2, and says of the others that they are not there.
var usageFiles = []struct {
	controller, name string
	take             func(*Usage, string)
}{
	{"cpuacct", "cpuacct.usage", func(u *Usage, s string) { u.CPU = number(s, 1) }},
	{"cpuacct", "cpuacct.usage_user", func(u *Usage, s string) { u.User = number(s, 1) }},
	{"cpuacct", "cpuacct.usage_sys", func(u *Usage, s string) { u.System = number(s, 1) }},
	{"memory", "memory.usage_in_bytes", func(u *Usage, s string) { u.Memory = number(s, 1) }},
	{"pids", "pids.current", func(u *Usage, s string) { u.Threads = number(s, 1) }},
	{"cpu", "cpu.stat", (*Usage).takeStat},
	{"memory", "memory.current", func(u *Usage, s string) { u.Memory = number(s, 1) }},
}

// takeStat reads cpu.stat, a key and a number on each line.
func (u *Usage) takeStat(text string) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "usage_usec":
			u.CPU = number(value, time.Microsecond)
		case "user_usec":
			u.User = number(value, time.Microsecond)
		case "system_usec":
			u.System = number(value, time.Microsecond)
		}
	}
}

func number(text string, unit time.Duration) *uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return nil
	}
	n *= uint64(unit)
	return &n
}

// Measure asks what containers use, in their order, by one request for all. A
// container that has ended, or that has no cgroup inside, has nothing but nils.
func Measure(ctx context.Context, socket string, containers []string) ([]Usage, error) {
	var args struct{ Args []readArg }
	for _, id := range containers {
		for _, f := range usageFiles {
			args.Args = append(args.Args, readArg{controlFile{f.controller, "/" + id, f.name}})
		}
	}
	var answer struct {
		Results []struct {
			Value   string `json:"value"`
			IsError bool   `json:"is_error"`
		} `json:"results"`
	}
	if err := call(ctx, socket, request{"Cgroups.ReadControlFiles", &args, nil}, &answer); err != nil {
		return nil, fmt.Errorf("ask the sandbox what its containers use: %w", err)
	}
	if got := len(answer.Results); got != len(args.Args) {
		return nil, fmt.Errorf("ask the sandbox what its containers use: it has %d answers to %d questions: %w", got, len(args.Args), errdefs.ErrUnavailable)
	}
	out := make([]Usage, len(containers))
	for i, r := range answer.Results {
		if !r.IsError {
			usageFiles[i%len(usageFiles)].take(&out[i/len(usageFiles)], r.Value)
		}
	}
	return out, nil
}
