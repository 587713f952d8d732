// Package ledger is what an agent has to know of pods that no runtime knows: when each
// was accepted and with which resources, and how it has ended. There is a file for each
// pod, which outlives the boot. It decides nothing.
package ledger

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
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/removal"
)

// Ledger is the files of one agent. Others may have theirs in the same folder. The
// zero value keeps nothing.
type Ledger struct {
	Root  string // persistent folder
	Agent string // its name
}

// Refusal is why a pod never runs here. It has failed then.
type Refusal struct {
	Reason, Message string
	// Again says that it may run here after all, once Reconsider was called.
	Again bool `json:"-"`
	// Disrupts is the message of the pod's condition DisruptionTarget; empty for none.
	Disrupts string `json:"disrupts,omitempty"`
	// Rejected says that the pod was not let in, which its status is to say.
	Rejected bool `json:"rejected,omitempty"`
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

// Record is what is known of a pod.
type Record struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Accepted is status.startTime, by the clock of the system alone: a deadline that counts from
	// it is over by that, whatever timers say.
	Accepted time.Time `json:"accepted"`
	// Agent is the name of the agent whose pod it is, and Source where that has it from.
	Agent  string `json:"agent,omitempty"`
	Source string `json:"source,omitempty"`
	// Allocated is what the pod was let in with, or was given since; nil if it was not.
	Allocated *capacity.Allocation `json:"allocated,omitempty"`
	// Place is where it was first run; nil before that.
	Place *Place `json:"place,omitempty"`
	// Ran says that a container of a pod that is never to run twice was started, or was about
	// to be.
	Ran bool `json:"ran,omitempty"`
	// Done are the statuses of containers that have ended for good while the pod goes on, where
	// no API server knows of them.
	Done []corev1.ContainerStatus `json:"done,omitempty"`
	// Hooks are the containers, by name, whose postStart hook is not known to have ended:
	// the id of the attempt.
	Hooks map[string]string `json:"hooks,omitempty"`
	// Ended is the status of a pod that has ended, so that it is not run again when
	// its containers are gone; nil for others.
	Ended *corev1.PodStatus `json:"ended,omitempty"`
	// Refusal is why it was ended; nil if it ended by itself.
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Place is what the class of a pod came to when its sandbox was made. The class may be
// gone by now, or another.
type Place struct {
	Class    string              `json:"class,omitempty"`
	Handler  string              `json:"handler,omitempty"`
	Overhead corev1.ResourceList `json:"overhead,omitempty"`
	// What the handler could do.
	RecursiveReadOnlyMounts bool `json:"recursiveReadOnlyMounts,omitempty"`
	UserNamespaces          bool `json:"userNamespaces,omitempty"`
	// HostIDs is the first of the node's ids that the pod has in its user namespace; 0 for
	// one without.
	HostIDs uint32 `json:"hostIDs,omitempty"`
}

func (l Ledger) path(uid types.UID) (string, error) {
	if l.Root == "" {
		return "", errors.New("no ledger is kept")
	}
	if !removal.IsUID(string(uid)) {
		return "", fmt.Errorf("the uid %q is none", uid)
	}
	return filepath.Join(l.Root, "agent", string(uid)+".json"), nil
}

// Read gives the record of a pod; found says whether there is one.
func (l Ledger) Read(uid types.UID) (r Record, found bool, err error) {
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
		return Record{}, false, fmt.Errorf("read the record of the pod: %w", err)
	}
	return r, true, nil
}

// Knows says that there is a record of a pod that can be read, of whichever agent.
func (l Ledger) Knows(uid types.UID) bool {
	_, found, err := l.Read(uid)
	return found && err == nil
}

// All are the records of this agent's pods. What cannot be read is left out: the
// worker of such a pod says so.
func (l Ledger) All() map[types.UID]Record {
	out := map[types.UID]Record{}
	if l.Root == "" {
		return out
	}
	files, err := os.ReadDir(filepath.Join(l.Root, "agent"))
	if err != nil {
		return out // there was no pod yet
	}
	for _, f := range files {
		uid := types.UID(strings.TrimSuffix(f.Name(), ".json"))
		if r, found, err := l.Read(uid); err == nil && found && r.Agent == l.Agent {
			out[uid] = r
		}
	}
	return out
}

// Pods are this agent's: their names, and the statuses of those that have ended.
func (l Ledger) Pods() []*corev1.Pod {
	var out []*corev1.Pod
	for uid, r := range l.All() {
		p := &corev1.Pod{}
		if r.Ended != nil {
			p.Status = *r.Ended
		}
		p.Namespace, p.Name, p.UID = r.Namespace, r.Name, uid
		out = append(out, p)
	}
	return out
}

// Write keeps a record.
func (l Ledger) Write(uid types.UID, r Record) error {
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

// Remove forgets a pod.
func (l Ledger) Remove(uid types.UID) error {
	path, err := l.path(uid)
	if err != nil {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
