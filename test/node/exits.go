package node

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SaidLost says whether a container's exit code is unknown, and rightly: its
// parents may have been killed on a kernel that then tells nobody how it ended.
func SaidLost(t *testing.T, st *runtimeapi.ContainerStatus) bool {
	t.Helper()
	return st.ExitCode == 255 && st.Reason == "ContainerStatusUnknown" && ExitsAreLost(t)
}

// ExitsAreLost says whether this kernel is such a one: before 6.15, without
// process events. These are for the first network namespace alone, in which tests
// are only where they have a machine to themselves.
func ExitsAreLost(t *testing.T) bool {
	t.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
		t.Fatalf("kernel %s: %v", release, err)
	}
	return (major < 6 || major == 6 && minor < 15) && !hasProcessEvents()
}

// hasProcessEvents asks the kernel for them as <linux/cn_proc.h> says, and
// whether it acknowledges that.
var hasProcessEvents = sync.OnceValue(func() bool {
	const group, listen = 1, 1 // CN_IDX_PROC and CN_VAL_PROC, PROC_CN_MCAST_LISTEN
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_CONNECTOR)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: group}) != nil {
		return false
	}
	limit := unix.NsecToTimeval(int64(2 * time.Second))
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit) != nil {
		return false
	}
	order := binary.NativeEndian
	var m []byte
	for _, word := range []uint32{unix.SizeofNlMsghdr + 24, unix.NLMSG_DONE, 0, 0, group, group, 0, 0, 4, listen} {
		m = order.AppendUint32(m, word)
	}
	if unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return false
	}
	_, err = unix.Read(fd, make([]byte, 4096)) // any event at all
	return err == nil
})
