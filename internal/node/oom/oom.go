// Package oom hears from the kernel's log which processes it has killed because
// there was no memory left: on the node (an event SystemOOM), or in a cgroup.
//
// What has become of a container its runtime says; this is for what belongs to no
// container, and for those who want to know why.
package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Reason is that of the node's event for a kill that is System.
const Reason = "SystemOOM"

// Log is the kernel's.
const Log = "/dev/kmsg"

// Kill is a process that the kernel has killed.
type Kill struct {
	System  bool   // the node had no memory left; else Limit had none
	Limit   string // the cgroup whose limit it was
	Cgroup  string // the one that the process was in
	Process string
	Pid     int
}

// Message is the text of the event.
func (k Kill) Message() string {
	return fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.Pid)
}

// Watch reads the kernel's log from now on and tells of each kill, until ctx ends.
// An error says that the log cannot be read.
func Watch(ctx context.Context, file string, killed func(Kill)) error {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("read the kernel's log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, unix.ESPIPE) {
		return fmt.Errorf("read the kernel's log from its end on: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	record := make([]byte, 8192) // the kernel gives one with each read, and none is longer
	for {
		n, err := f.Read(record)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EPIPE): // some were overwritten before they were read
			continue
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		for line := range strings.Lines(string(record[:n])) {
			if k, ok := Parse(strings.TrimSuffix(line, "\n")); ok {
				killed(k)
			}
		}
	}
}

// Parse reads a record of the log: "3,2056,123456,-;oom-kill:constraint=...". What
// programs have written into the log counts for nothing.
func Parse(line string) (Kill, bool) {
	head, text, ok := strings.Cut(line, ";")
	if !ok {
		return Kill{}, false
	}
	level, _, _ := strings.Cut(head, ",")
	if n, err := strconv.Atoi(level); err != nil || n>>3 != 0 {
		return Kill{}, false
	}
	text, ok = strings.CutPrefix(text, "oom-kill:")
	if !ok {
		return Kill{}, false
	}
	// The name of the process is its own choice, commas included.
	before, task, ok := strings.Cut(text, ",task=")
	at := strings.LastIndex(task, ",pid=")
	if !ok || at < 0 {
		return Kill{}, false
	}
	pid, _, _ := strings.Cut(task[at+len(",pid="):], ",")
	k := Kill{Process: task[:at]}
	var err error
	if k.Pid, err = strconv.Atoi(pid); err != nil {
		return Kill{}, false
	}
	for field := range strings.SplitSeq(before, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "global_oom":
			k.System = true
		case "oom_memcg":
			k.Limit = value
		case "task_memcg":
			k.Cgroup = value
		}
	}
	return k, true
}
