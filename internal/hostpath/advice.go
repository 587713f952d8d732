package hostpath

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Advice is what somebody has to do about an error that is of no use to wait for; empty
// if it says so itself. Runtimes tell of such errors in words only.
func Advice(err error) string {
	// It has other meanings for what makes no process.
	if text := err.Error(); strings.Contains(text, unix.EAGAIN.Error()) && (strings.Contains(text, "fork") || strings.Contains(text, "clone") || strings.Contains(text, "thread")) {
		return "; there are as many processes as there may be: see the sysctls kernel.pid_max and kernel.threads-max, and pids.max of its cgroup and those above"
	}
	for number, what := range map[unix.Errno]string{
		unix.ENOSPC: "; make room there: df says whether bytes are missing, and df -i whether inodes are",
		unix.EDQUOT: "; make room there, or raise the quota",
		unix.EROFS:  "; mount it for writing: dmesg says whether the kernel has found errors on it",
		unix.EMFILE: "; raise the limit of open files of the agent",
		unix.ENFILE: "; raise the machine's limit of open files, the sysctl fs.file-max",
	} {
		if strings.Contains(err.Error(), number.Error()) {
			return what
		}
	}
	return ""
}
