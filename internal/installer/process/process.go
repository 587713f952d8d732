// Package process runs programs of a node, and looks at those that run there.
package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command is a program of the node, which has the root directory where all of the node
// is seen as its own.
func Command(ctx context.Context, root, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // for what it has started, and which holds its output
	cmd.Dir = "/"
	if filepath.Clean("/"+root) != "/" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	return cmd
}

// Runnable says whether a file is a program.
func Runnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// AnyFrom says whether a process that can be seen has its program below one of the
// folders. The kernel names programs by their place behind all links.
func AnyFrom(dirs ...string) bool {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return false
	}
	for _, l := range links {
		path, err := os.Readlink(l)
		if err == nil && slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			return true
		}
	}
	return false
}

// Started is when a process began.
func Started(pid int) (time.Time, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return time.Time{}, fmt.Errorf("look when process %d began: %w", pid, err)
	}
	// The name is in parentheses and may have blanks; the 20th field behind it is
	// the time since boot in hundredths of a second.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil || len(fields) < 20 {
		return time.Time{}, fmt.Errorf("look when process %d began: /proc is not as expected", pid)
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("look when process %d began: %w", pid, err)
	}
	up, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("look when process %d began: %w", pid, err)
	}
	age := time.Duration(up*float64(time.Second)) - time.Duration(ticks)*10*time.Millisecond
	return time.Now().Add(-age), nil
}
