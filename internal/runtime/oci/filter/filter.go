// Package filter keeps the seccomp filters that crun has compiled, so that it
// does not compile the same one again for each container, which takes longer
// than all the rest of its work.
//
// crun leaves the compiled filter of a container in its state folder, and takes
// one from an annotation of the bundle. So the filter that one container got is
// given to the next one that asks for the same. What is not known yet, or not
// understood, is left to crun. Nothing is kept on disk.
package filter

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"fairlead.run/internal/atomicfile"
)

// annotation is where crun looks for a compiled filter, in base64.
const annotation = "run.oci.seccomp_bpf_data"

// compiled is the name of the file in crun's state folder of a container.
const compiled = "seccomp.bpf"

// The kernel takes filters of 4096 instructions, of eight bytes each, at most.
const (
	instruction = 8
	largest     = 4096 * instruction
)

// enough is how many filters are kept. There is one for each profile and set of
// capabilities in use.
const enough = 64

// Key stands for a filter as it was asked for, and the program that compiles it.
// The zero Key stands for none.
type Key [sha256.Size]byte

// Cache has compiled filters. The zero value is empty.
type Cache struct {
	mu    sync.Mutex
	known map[Key]string // base64
}

// bundle is a config.json, as far as it matters.
type bundle struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		Seccomp json.RawMessage `json:"seccomp"`
	} `json:"linux"`
}

// listener is the part of a filter that is more than the compiled program.
type listener struct {
	ListenerPath string `json:"listenerPath"`
}

// Give puts the compiled filter into a bundle if it is known. Otherwise it
// returns the key to Take it with when the container runs, or the zero Key for a
// bundle without a filter or with one that is not only a program.
func (c *Cache) Give(dir, program string) (Key, error) {
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fmt.Errorf("read the container's specification: %w", err)
	}
	var b bundle
	var l listener
	if json.Unmarshal(data, &b) != nil || len(b.Linux.Seccomp) == 0 {
		return Key{}, nil // what is wrong with a bundle the runtime says best
	}
	if _, given := b.Annotations[annotation]; given {
		return Key{}, nil
	}
	if json.Unmarshal(b.Linux.Seccomp, &l) != nil || l.ListenerPath != "" {
		return Key{}, nil
	}
	key := keyOf(program, b.Linux.Seccomp)
	c.mu.Lock()
	filter := c.known[key]
	c.mu.Unlock()
	if filter == "" {
		return key, nil
	}
	return Key{}, annotate(path, data, b.Annotations, filter)
}

func keyOf(program string, seccomp []byte) Key {
	return sha256.Sum256(append([]byte(program+"\x00"), seccomp...))
}

// annotate writes the bundle with one annotation more.
func annotate(path string, data []byte, annotations map[string]string, filter string) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("read the container's specification %s: %w", path, err)
	}
	more := map[string]string{annotation: filter}
	for k, v := range annotations {
		more[k] = v
	}
	var err error
	if all["annotations"], err = json.Marshal(more); err != nil {
		return fmt.Errorf("write the container's specification %s: %w", path, err)
	}
	if data, err = json.Marshal(all); err != nil {
		return fmt.Errorf("write the container's specification %s: %w", path, err)
	}
	return atomicfile.Write(path, data, 0o600)
}

// Take keeps the filter that was compiled for a container, from crun's state
// folder of that. A container that is gone, or a crun that keeps no file, leaves
// nothing to take.
func (c *Cache) Take(k Key, state string) {
	if k == (Key{}) {
		return
	}
	data, err := os.ReadFile(filepath.Join(state, compiled))
	if err != nil || len(data) == 0 || len(data) > largest || len(data)%instruction != 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= enough {
		c.known = map[Key]string{}
	}
	c.known[k] = base64.StdEncoding.EncodeToString(data)
}
