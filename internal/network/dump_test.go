package network

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestDumpAsksAgain(t *testing.T) {
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		interrupted int
		then        error
		want        error
	}{
		"at once":     {0, nil, nil},
		"after a few": {5, nil, nil},
		"never":       {1 << 30, nil, netlink.ErrDumpInterrupted},
		"other error": {2, boom, boom},
	} {
		t.Run(name, func(t *testing.T) {
			left := tt.interrupted
			got, err := Dump(func() ([]int, error) {
				if left > 0 {
					left--
					return []int{1}, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
				}
				return []int{1, 2}, tt.then
			})
			if !errors.Is(err, tt.want) || tt.want == nil && len(got) != 2 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
