package network

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries is how often a list is asked for that changes while it is read. On
// a node that starts and removes pods at full speed a few are needed.
const dumpTries = 100

// Dump lists links, routes or addresses. The kernel hands such a list out piece
// by piece, and says so if it changed in between: then it is asked for anew.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for try := 1; ; try++ {
		found, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || try == dumpTries {
			return found, err
		}
	}
}
