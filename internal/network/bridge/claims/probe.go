package claims

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// closeProbe ends a listener that was only opened to see whether it works.
func closeProbe(c io.Closer, err error) error {
	if err != nil {
		return err
	}
	return c.Close()
}

func isAddrInUse(err error) bool { return errors.Is(err, unix.EADDRINUSE) }
