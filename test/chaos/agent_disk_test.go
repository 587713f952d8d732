package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// shortage is a disk without room, on which agent and runtime have what they keep, images,
// logs and layers: no pod begins, which an event says with what is to be done, and what
// could not begin does so when there is room.
func shortage(d *disk, f fault) trouble {
	kind := strings.ReplaceAll(f.name, " ", "-")
	last := 0
	name := func() string { return fmt.Sprintf("%s-%d", kind, last) }
	return trouble{"the disk has a fault: " + f.name, func(c *cluster) {
		f.on(d)
		c.put(name())
		c.eventually("an event says why a pod does not begin", func() bool {
			f.on(d) // others end meanwhile, and leave room
			if c.ready(name()) {
				last++
				c.put(name())
			}
			return slices.ContainsFunc(c.told(), func(e string) bool {
				return strings.HasPrefix(e, kind+"-") && strings.Contains(e, "no space left on device") && strings.Contains(e, d.dir) && strings.Contains(e, "make room")
			})
		})
	}, func(c *cluster) {
		f.off(d)
		for i := range last + 1 {
			pod := fmt.Sprintf("%s-%d", kind, i)
			c.eventually("pod "+pod+" runs when there is room", func() bool { return c.ready(pod) })
			c.remove(pod)
		}
	}}
}
