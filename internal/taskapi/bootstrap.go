package taskapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"fairlead.run/internal/errdefs"
)

// Bootstrap is what a shim is told when it is started.
type Bootstrap struct {
	ID string
	// Events is the socket that the shim's events go to, unix:// and a path.
	Events string
	// Publisher is the program that older shims run for each event.
	Publisher string
	// Sockets is the folder that the shim is to put its socket into. Older shims have
	// one of their own, DefaultSockets.
	Sockets string
	Options Any
}

// DefaultSockets is where shims have their sockets that are not told where.
const DefaultSockets = "/run/containerd/s"

// longestSocketFolder leaves room for the name of a socket in the 107 bytes of
// its address.
const longestSocketFolder = 107 - 1 - 2*sha256.Size

// SocketPaths are where the socket of a shim may be that was started for a
// container and has not said so: where containerd's library puts it.
func (b Bootstrap) SocketPaths() []string {
	sum := sha256.Sum256([]byte(filepath.Join(b.Events, Namespace, b.ID)))
	name := hex.EncodeToString(sum[:])
	return []string{filepath.Join(b.Sockets, name), filepath.Join(DefaultSockets, name)}
}

// Encode is the message on standard input that shims take since containerd 2.3.
func (b Bootstrap) Encode() []byte {
	var m message
	m.text(1, b.ID)
	m.text(2, Namespace)
	m.text(5, b.Events)
	m.text(6, b.Events)
	m.text(7, b.Publisher)
	if b.Options.Type != "" {
		var extension message
		extension.bytes(1, b.Options.Encode())
		m.bytes(8, extension)
	}
	if len(b.Sockets) <= longestSocketFolder {
		m.text(9, b.Sockets)
	}
	return m
}

// ParseStarted understands what a shim has printed when it was started: a message
// (since containerd 2.3), JSON (since 1.7) or an address.
func ParseStarted(out []byte) (Endpoint, error) {
	var told struct {
		Version  int    `json:"version"`
		Address  string `json:"address"`
		Protocol string `json:"protocol"`
	}
	text := strings.TrimSpace(string(out))
	if f, err := parse(out); err == nil && f.number(1) >= 2 && len(f.bytes(2)) > 0 {
		told.Version, told.Address, told.Protocol = int(f.number(1)), string(f.bytes(2)), string(f.bytes(3))
	} else if json.Unmarshal([]byte(text), &told) != nil || told.Version < 2 {
		told.Version, told.Address, told.Protocol = 2, text, "ttrpc"
	}
	e := Endpoint{Address: told.Address, Version: told.Version}
	switch {
	case told.Address == "" || strings.ContainsAny(told.Address, " \t\n\x00") || len(told.Address) > 256:
		return Endpoint{}, fmt.Errorf("the shim says %.200q when it is started, which is no address: %w", text, errdefs.ErrInternal)
	case told.Version > 3:
		return Endpoint{}, fmt.Errorf("the shim has version %d of the task service, and only 2 and 3 are known: %w", told.Version, errdefs.ErrUnimplemented)
	case told.Protocol != "" && told.Protocol != "ttrpc":
		return Endpoint{}, fmt.Errorf("the shim speaks %q; only ttrpc is known, so let it serve that: %w", told.Protocol, errdefs.ErrUnimplemented)
	}
	_, err := e.socket()
	return e, err
}

// Info is what a shim says of its runtime (its flag -info).
type Info struct {
	// Features is the JSON that the OCI runtime below prints, if there is one.
	Features []byte
}

// ParseInfo reads it.
func ParseInfo(out []byte) (Info, error) {
	f, err := parse(out)
	if err != nil {
		return Info{}, err
	}
	features, err := parse(f.bytes(4))
	if err != nil {
		return Info{}, err
	}
	return Info{Features: features.bytes(2)}, nil
}
