package rootfs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// List returns what is mounted below dir, or on it, in this mount namespace:
// each path once, sorted.
func List(dir string) ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(strings.TrimSuffix(dir, "/")))
	if err != nil {
		return nil, fmt.Errorf("list mounts below %s: %w", dir, err)
	}
	var out []string
	for _, i := range infos {
		out = append(out, i.Mountpoint)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
