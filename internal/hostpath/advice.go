package hostpath

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Advice is what somebody has to do about an error that is of no use to wait for; empty
// if it says so itself. Runtimes tell of such errors in words only.
func Advice(err error) string {
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
