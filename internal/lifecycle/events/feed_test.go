package events

import (
	"fmt"
	"slices"
	"testing"

	"fairlead.run/internal/pod"
)

// record is a pod with containers "a", "b", ... in the given states.
func record(state pod.State, states ...pod.State) *pod.Record {
	r := &pod.Record{ID: "pod", State: state}
	for i, s := range states {
		if s != "" {
			r.Containers = append(r.Containers, &pod.Container{ID: pod.ContainerID(rune('a' + i)), State: s})
		}
	}
	return r
}

// ran is the record with a container that had a process.
func ran(r *pod.Record) *pod.Record {
	r.Containers[0].Process = &pod.RunningProcess{PID: 1}
	return r
}

func drain(c <-chan pod.Notice) (out []string) {
	for {
		select {
		case e, ok := <-c:
			if !ok {
				return append(out, "closed")
			}
			out = append(out, fmt.Sprint(e.ID, " ", e.Kind))
		default:
			return out
		}
	}
}

func TestEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		old, now *pod.Record
		want     []string
	}{
		"a pod begins":             {nil, record(pod.Creating), nil},
		"a pod runs":               {record(pod.Creating), record(pod.Running), []string{"pod Created", "pod Started"}},
		"a pod is taken back":      {record(pod.Creating), nil, nil},
		"a pod is stopped":         {record(pod.Running, pod.Exited), record(pod.Exited, pod.Exited), []string{"pod Stopped"}},
		"a pod is removed":         {record(pod.Exited), nil, []string{"pod Deleted"}},
		"a pod with one container": {record(pod.Exited, pod.Exited), nil, []string{"a Deleted", "pod Deleted"}},
		"a container begins":       {record(pod.Running), record(pod.Running, pod.Creating), nil},
		"a container is made":      {record(pod.Running, pod.Creating), record(pod.Running, pod.Created), []string{"a Created"}},
		"a container is not made":  {record(pod.Running, pod.Creating), record(pod.Running), nil},
		"a container starts":       {record(pod.Running, pod.Created), record(pod.Running, pod.Running), []string{"a Started"}},
		"a container does not":     {record(pod.Running, pod.Created), record(pod.Running, pod.Exited), []string{"a Stopped"}},
		"a quick container":        {record(pod.Running, pod.Created), ran(record(pod.Running, pod.Exited)), []string{"a Started", "a Stopped"}},
		"a container that ran":     {ran(record(pod.Running, pod.Running)), ran(record(pod.Running, pod.Exited)), []string{"a Stopped"}},
		"one that ran is found":    {nil, ran(record(pod.Running, pod.Exited)), []string{"a Created", "a Started", "a Stopped", "pod Created", "pod Started"}},
		"one was unknown":          {ran(record(pod.Running, pod.Unknown)), ran(record(pod.Running, pod.Exited)), []string{"a Stopped"}},
		"a container ends":         {record(pod.Running, pod.Running, pod.Running), record(pod.Running, pod.Running, pod.Exited), []string{"b Stopped"}},
		"a container is removed":   {record(pod.Running, pod.Exited, pod.Running), record(pod.Running, "", pod.Running), []string{"a Deleted"}},
		"nothing is known":         {record(pod.Running, pod.Running), record(pod.Unknown, pod.Unknown), nil},
		"it is known again":        {record(pod.Unknown, pod.Unknown), record(pod.Running, pod.Exited), []string{"a Stopped", "pod Started"}},
		"a record was found":       {nil, record(pod.Running, pod.Exited), []string{"a Created", "a Stopped", "pod Created", "pod Started"}},
		"something else":           {record(pod.Running, pod.Running), record(pod.Running, pod.Running), nil},
	} {
		var f Feed
		seen, stop := f.Follow()
		f.Changed(tt.old, tt.now)
		if got := drain(seen); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		stop()
	}
}

func TestEventsCarryTheRecord(t *testing.T) {
	var f Feed
	seen, stop := f.Follow()
	defer stop()
	before, after := record(pod.Running, pod.Running), record(pod.Running, pod.Exited)
	f.Changed(before, after)
	if e := <-seen; e.Record != after || e.At.IsZero() {
		t.Errorf("%+v", e)
	}
	f.Changed(after, nil)
	if e := <-seen; e.Record != after {
		t.Errorf("of a pod that is gone: %+v", e)
	}
}

// One that does not read is cut off; the others get everything.
func TestSlowFollower(t *testing.T) {
	var f Feed
	f.Changed(nil, record(pod.Running)) // for nobody
	slow, stopSlow := f.Follow()
	quick, stopQuick := f.Follow()
	defer stopQuick()
	got := 0
	for range backlog {
		f.Changed(record(pod.Creating), record(pod.Running))
		got += len(drain(quick))
	}
	if got != 2*backlog {
		t.Errorf("%d events of %d", got, 2*backlog)
	}
	late := drain(slow)
	if len(late) != backlog+1 || late[backlog] != "closed" || late[0] != "pod Created" {
		t.Errorf("%d events for the slow one, the last being %q", len(late), late[len(late)-1])
	}
	stopSlow()
	stopQuick()
	if len(f.followers) != 0 {
		t.Errorf("%d followers are left", len(f.followers))
	}
}
