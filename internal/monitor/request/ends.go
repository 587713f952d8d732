package request

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
)

// ExecEnds checks the request and puts the descriptors that came with it in
// their places.
func ExecEnds(req *monitorv1.ExecRequest, fds []int) ([]int, error) {
	if err := CheckExec(req); err != nil {
		return nil, err
	}
	want := 0
	for _, passed := range req.Stdio {
		if passed {
			want++
		}
	}
	if want != len(fds) {
		return nil, fmt.Errorf("start exec %s: the request names %d descriptors and came with %d: %w", req.ID, want, len(fds), errdefs.ErrInvalidArgument)
	}
	if req.TTY {
		return nil, nil
	}
	var ends []int
	for _, passed := range req.Stdio {
		if passed {
			ends, fds = append(ends, fds[0]), fds[1:]
			continue
		}
		fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
		}
		ends = append(ends, fd)
	}
	return ends, nil
}
