package agent

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// told is an error of which an event tells already.
type told struct{ error }

// Unwrap is the error itself.
func (t *told) Unwrap() error { return t.error }

// told has an event tell what has failed.
func (w *worker) told(reason string, err error) error {
	w.event(corev1.EventTypeWarning, reason, message(err)+advice(err))
	return &told{err}
}

// complain tells what keeps a pod from being as it should be, if nothing has yet. That
// the runtime is away is a condition of the node, and no event of each of its pods; what
// was cut off has not failed. Counting equal events is for who writes them.
func (w *worker) complain(err error) {
	known := (*told)(nil)
	code := status.Code(err)
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || code == codes.Canceled || code == codes.Unavailable {
		return
	}
	w.event(corev1.EventTypeWarning, "FailedSync", message(err)+advice(err))
}

// advice is what somebody has to do about an error that is of no use to wait for; empty
// if it says so itself. Runtimes tell of such errors in words only.
func advice(err error) string {
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
