// Package record keeps what the monitor must know after its own death, as one
// small file per process and one per exit that nobody has claimed yet.
//
// The files live on a tmpfs and are replaced in one step, never flushed. The
// inner process is the only writer of proc/, whichever process reaps a child
// writes exits/, and the outer one writes seen/ when it sees an end before the
// inner one. The daemon reads none of it: it asks.
package record

import (
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
)

// Ident names one process of this boot: a pid alone is used again.
type Ident struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start,omitempty"` // see linux.Stat
}

// Spec is what was asked for.
// Larger because it is one record on disk, as flat as the request it is from.
type Spec struct {
	Kind       monitorv1.ProcessKind `json:"kind"`
	PIDFile    string                `json:"pidFile"`
	IODir      string                `json:"ioDir,omitempty"`
	Label      string                `json:"label,omitempty"`
	Owner      monitorv1.Owner       `json:"owner,omitzero"` // of the FIFOs
	LogPath    string                `json:"logPath,omitempty"`
	LogDir     string                `json:"logDir,omitempty"` // empty in the records of older monitors
	LogMaxLine int                   `json:"logMaxLine,omitempty"`
	Stdin      bool                  `json:"stdin,omitempty"`
	StdinOnce  bool                  `json:"stdinOnce,omitempty"`
	TTY        bool                  `json:"tty,omitempty"`
	Mark       uint64                `json:"mark,omitempty"`     // of an exec; see monitorv1.ExecRequest
	Anywhere   bool                  `json:"anywhere,omitempty"` // of the mark: monitorv1.ExecRequest.MarkAnywhere
	Token      string                `json:"token,omitempty"`
	Deadline   time.Time             `json:"deadline"` // of the runtime command
	Cgroup     string                `json:"cgroup,omitempty"`
	Sandbox    string                `json:"sandbox,omitempty"`
}

// Process is the record of one process.
type Process struct {
	ID    string          `json:"id"`
	Spec  Spec            `json:"spec"`
	State monitorv1.State `json:"state"`
	// Command is the runtime command while State is Starting.
	Command Ident `json:"command,omitzero"`
	// Main is the container's or exec's own process.
	Main      Ident     `json:"main,omitzero"`
	StartedAt time.Time `json:"startedAt"`
	// Cgroups is /proc/PID/cgroup as it was at the start.
	Cgroups string `json:"cgroups,omitempty"`
	// KilledElsewhere is what cgroup.Ledger wants to have kept.
	KilledElsewhere int             `json:"killedElsewhere,omitempty"`
	StdinClosed     bool            `json:"stdinClosed,omitempty"`
	Exit            *monitorv1.Exit `json:"exit,omitempty"`
}

// Started is the answer to the request that made the process.
func (p *Process) Started() monitorv1.Started {
	return monitorv1.Started{ID: p.ID, PID: p.Main.PID, StartTime: p.Main.Start, StartedAt: p.StartedAt}
}
