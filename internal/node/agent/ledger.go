package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/node/removal"
)

// ledger is what has to be known of pods that no runtime knows, in a file for each.
// It outlives the boot.
type ledger struct{ root, agent string }

// record is what is known of a pod.
type record struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Accepted  time.Time `json:"accepted"` // status.startTime
	// Agent is the name of the agent whose pod it is, and Source where that has it from.
	Agent  string `json:"agent,omitempty"`
	Source string `json:"source,omitempty"`
	// Ended is the status of a pod that has ended, so that it is not run again when
	// its containers are gone; nil for others.
	Ended *corev1.PodStatus `json:"ended,omitempty"`
	// Refusal is why it was ended; nil if it ended by itself.
	Refusal *Refusal `json:"refusal,omitempty"`
}

func (l ledger) path(uid types.UID) (string, error) {
	if !removal.IsUID(string(uid)) {
		return "", fmt.Errorf("the uid %q is none", uid)
	}
	return filepath.Join(l.root, "agent", string(uid)+".json"), nil
}

// read gives the record of a pod; found says whether there is one.
func (l ledger) read(uid types.UID) (r record, found bool, err error) {
	path, err := l.path(uid)
	if err != nil {
		return r, false, nil // it can have none
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return record{}, false, fmt.Errorf("read the record of the pod: %w", err)
	}
	return r, true, nil
}

// all are the records of this agent's pods. What cannot be read is left out: the
// worker of such a pod says so.
func (l ledger) all() map[types.UID]record {
	out := map[types.UID]record{}
	files, err := os.ReadDir(filepath.Join(l.root, "agent"))
	if err != nil {
		return out // there was no pod yet
	}
	for _, f := range files {
		uid := types.UID(strings.TrimSuffix(f.Name(), ".json"))
		if r, found, err := l.read(uid); err == nil && found && r.Agent == l.agent {
			out[uid] = r
		}
	}
	return out
}

// ended are the pods of which it is known how they have ended.
func (l ledger) ended() []*corev1.Pod {
	var out []*corev1.Pod
	for uid, r := range l.all() {
		if r.Ended != nil {
			p := &corev1.Pod{Status: *r.Ended}
			p.Namespace, p.Name, p.UID = r.Namespace, r.Name, uid
			out = append(out, p)
		}
	}
	return out
}

func (l ledger) write(uid types.UID, r record) error {
	path, err := l.path(uid)
	if err != nil {
		return nil // nothing of it can be found again
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("write the record of the pod: %w", err)
	}
	return nil
}

func (l ledger) remove(uid types.UID) error {
	path, err := l.path(uid)
	if err != nil {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
