package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fairlead.run/internal/monitor/linux"
)

// SaveExit records how a child ended that its reaper does not know. It is
// called before the child is reaped: as long as the process is seen, the
// record may come; once it is gone, the record is there.
func (d *Dir) SaveExit(e linux.Ended) error {
	if err := save(d.exit(Ident{PID: e.PID, Start: e.Start}), e); err != nil {
		return fmt.Errorf("record exit of process %d: %w", e.PID, err)
	}
	return nil
}

func (d *Dir) exit(who Ident) string {
	return filepath.Join(d.exits, strconv.Itoa(who.PID)+"-"+strconv.FormatUint(who.Start, 10)+suffix)
}

// Exit looks for how a process ended.
func (d *Dir) Exit(who Ident) (linux.Ended, bool) {
	var e linux.Ended
	err := load(d.exit(who), &e)
	return e, err == nil
}

// Exits reads all unclaimed exits.
func (d *Dir) Exits() []linux.Ended {
	entries, err := os.ReadDir(d.exits)
	if err != nil {
		return nil
	}
	var all []linux.Ended
	for _, entry := range entries {
		var e linux.Ended
		if strings.HasPrefix(entry.Name(), ".") || load(filepath.Join(d.exits, entry.Name()), &e) != nil {
			continue
		}
		all = append(all, e)
	}
	return all
}

// ExitSince looks for how a process ended that was gone before its start time
// could be read, among the unclaimed exits.
func (d *Dir) ExitSince(pid int, since time.Time) (linux.Ended, bool) {
	for _, e := range d.Exits() {
		if e.PID == pid && !e.At.Before(since) {
			return e, true
		}
	}
	return linux.Ended{}, false
}

// DropExit removes an exit that was claimed or that nobody will ask for. One
// that does not exist is fine.
func (d *Dir) DropExit(who Ident) {
	// A file that stays is dropped at the next start; it says nothing wrong.
	_ = os.Remove(d.exit(who))
}

// SaveSeen records when somebody saw the process of a container end, for the
// case that who reaps it comes late.
func (d *Dir) SaveSeen(id string, at time.Time) error {
	if err := save(d.sighting(id), at); err != nil {
		return fmt.Errorf("record when process %s ended: %w", id, err)
	}
	return nil
}

func (d *Dir) sighting(id string) string { return filepath.Join(d.seen, id+suffix) }

// Seen is when somebody saw the process end.
func (d *Dir) Seen(id string) (time.Time, bool) {
	var at time.Time
	err := load(d.sighting(id), &at)
	return at, err == nil
}

// DropSeen removes what SaveSeen wrote, if it did.
func (d *Dir) DropSeen(id string) { _ = os.Remove(d.sighting(id)) }

// KeepSeen drops what was seen of all others but these.
func (d *Dir) KeepSeen(wanted map[string]bool) {
	entries, _ := os.ReadDir(d.seen)
	for _, e := range entries {
		if id := strings.TrimSuffix(e.Name(), suffix); !wanted[id] {
			d.DropSeen(id)
		}
	}
}
