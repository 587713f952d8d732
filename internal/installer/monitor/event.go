package monitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fairlead.run/internal/atomicfile"
)

// Reasons of events.
const (
	Restarted     = "RuntimeRestarted"
	RestartFailed = "RuntimeRestartFailed"
)

// Event is a restart. Events are lines of JSON in a file of the node, where those
// who can make it known in the cluster read them.
type Event struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
	// Silent is how long there had been no answer, as a duration, and Times how
	// often it was restarted since the last.
	Silent string `json:"silent"`
	Times  int    `json:"times"`
	// How is the way of the restart, and Error why it failed.
	How   string `json:"how"`
	Error string `json:"error,omitempty"`
}

// String is a sentence for people.
func (e Event) String() string {
	at := e.Time.UTC().Format(time.RFC3339)
	if e.Error != "" {
		return fmt.Sprintf("%s: the container runtime had not answered for %s at %s, and could not be restarted: %s", e.Reason, e.Silent, at, e.Error)
	}
	return fmt.Sprintf("%s: the container runtime had not answered for %s at %s; %s, the %d. time since its last answer", e.Reason, e.Silent, at, e.How, e.Times)
}

// keep is how many events a file has at most.
const keep = 32

// Append adds an event to a file, and takes out the oldest of too many. There is one
// writer.
func Append(path string, e Event) error {
	all, err := Read(path)
	if err != nil {
		return err
	}
	all = append(all, e)
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	for _, e := range all[max(0, len(all)-keep):] {
		if err := lines.Encode(e); err != nil {
			return fmt.Errorf("write the monitor's events: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the monitor's events: %w", err)
	}
	if err := atomicfile.Write(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the monitor's events: %w", err)
	}
	return nil
}

// Read reads the events of a file, the oldest first; none if it is not there. A line
// that cannot be read is left out: it is of another version.
func Read(path string) ([]Event, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the monitor's events: %w", err)
	}
	var all []Event
	for line := range bytes.Lines(data) {
		var e Event
		if json.Unmarshal(line, &e) == nil && !e.Time.IsZero() {
			all = append(all, e)
		}
	}
	return all, nil
}
