package pod

import (
	"crypto/rand"
	"encoding/hex"
)

// ID names a pod sandbox: 64 lower-case hexadecimal digits, made once.
type ID string

// ContainerID names a container in the same form as ID. The two share one
// name space on the host: no container has the id of a pod.
type ContainerID string

// NewID makes an id that no pod or container has had.
func NewID() ID { return ID(random()) }

// NewContainerID makes an id that no pod or container has had.
func NewContainerID() ContainerID { return ContainerID(random()) }

func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process instead
	return hex.EncodeToString(b[:])
}

// Short is the id as people read it: its first 13 digits, as crictl prints it.
func (id ID) Short() string { return short(string(id)) }

// Short is the id as people read it: its first 13 digits, as crictl prints it.
func (id ContainerID) Short() string { return short(string(id)) }

func short(s string) string {
	if len(s) > 13 {
		return s[:13]
	}
	return s
}
