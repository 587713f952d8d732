package streaming

import (
	"errors"
	"fmt"
	"os"

	"fairlead.run/internal/errdefs"
)

// pipes connect a process's input and outputs to this side.
type pipes struct {
	theirs [3]*os.File // what the process gets: stdin, stdout, stderr
	ours   [3]*os.File
}

// newPipes makes the pipes that are wanted; the others are nil.
func newPipes(want [3]bool) (*pipes, error) {
	p := &pipes{}
	for i, wanted := range want {
		if !wanted {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, fmt.Errorf("make a pipe for a stream: %w: %w", err, errdefs.ErrExhausted)
		}
		if i == 0 {
			p.theirs[i], p.ours[i] = r, w
		} else {
			p.theirs[i], p.ours[i] = w, r
		}
	}
	return p, nil
}

// release closes the process's ends, so that this side sees when the last
// other holder of one has closed it.
func (p *pipes) release() { closeAll(p.theirs) }

func (p *pipes) close() {
	closeAll(p.theirs)
	closeAll(p.ours)
}

func closeAll(files [3]*os.File) {
	for _, f := range files {
		if f != nil {
			if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
				continue // a pipe has nothing to lose
			}
		}
	}
}
