package keep

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/manifest"
)

// Reasons of the events of copies.
const (
	NotKept = "ManifestNotKept"  // one cannot be written, or removed
	Lost    = "KeptManifestLost" // one cannot be read
)

// Retry is how often somebody is to call Again as long as there is a problem.
const Retry = 5 * time.Second

// Copies are those of one source. What cannot be written or removed is tried again: a
// disk that is full has room again some time. They are used by one goroutine.
type Copies struct {
	folder Folder
	source string         // for people
	due    map[string]due // what is not on disk as it should be, by name
	lost   error          // what Load could not read
}

// due is a copy that is to be written, or to go if it is nil, and why it was not.
type due struct {
	copy *Copy
	why  error
}

// Of are the copies of a source that are kept in a folder.
func Of(source string, folder Folder) *Copies {
	return &Copies{folder: folder, source: source, due: map[string]due{}}
}

// Load returns what an earlier agent has kept. What of it cannot be read is a problem.
func (c *Copies) Load() []Copy {
	all, err := c.folder.Load()
	c.lost = err
	return all
}

// Save keeps a copy in place of an earlier one of its name.
func (c *Copies) Save(one Copy) { c.write(one.Name, &one) }

// Remove forgets the copy of a name.
func (c *Copies) Remove(name string) { c.write(name, nil) }

func (c *Copies) write(name string, one *Copy) {
	err := error(nil)
	if one != nil {
		err = c.folder.Save(*one)
	} else {
		err = c.folder.Remove(name)
	}
	if delete(c.due, name); err != nil {
		c.due[name] = due{one, err}
	}
}

// Again tries again what has failed, and says whether the problem is another one now.
func (c *Copies) Again() (changed bool) {
	was := c.failed()
	for name, d := range c.due {
		c.write(name, d.copy)
	}
	return fmt.Sprint(was) != fmt.Sprint(c.failed())
}

// failed is why the first by name of those that are due is not there. One tells enough.
func (c *Copies) failed() error {
	for _, name := range slices.Sorted(maps.Keys(c.due)) {
		return c.due[name].why
	}
	return nil
}

// Failing says that there is something to try again.
func (c *Copies) Failing() bool { return len(c.due) > 0 }

// Problems are what is wrong with the copies now.
func (c *Copies) Problems() (out []manifest.Problem) {
	if failed := c.failed(); failed != nil {
		out = append(out, manifest.Problem{Origin: c.source, Reason: NotKept, Err: fmt.Errorf(
			"manifests of %s: not all are kept as they are now, and one that is broken when the agent starts next would take its pods with it; it is tried again: %w%s",
			c.source, failed, hostpath.Advice(failed))})
	}
	if c.lost != nil {
		out = append(out, manifest.Problem{Origin: c.source, Reason: Lost, Err: fmt.Errorf(
			"manifests of %s: copies that an earlier agent has kept are lost, so that the pods of a manifest that is broken do not run until it is mended: %w%s",
			c.source, c.lost, hostpath.Advice(c.lost))})
	}
	return out
}

// Told forgets what was lost: once the source was read nobody needs it.
func (c *Copies) Told() (changed bool) {
	changed = c.lost != nil
	c.lost = nil
	return changed
}
