package pod

import (
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestStateTable(t *testing.T) {
	states := []State{Creating, Created, Running, Exited, Unknown}
	events := []Event{Prepared, Started, Ended, Lost, Found}
	allowed := map[State]map[Event]State{
		Creating: {Prepared: Created},
		Created:  {Started: Running, Ended: Exited, Lost: Unknown},
		Running:  {Ended: Exited, Lost: Unknown},
		Unknown:  {Found: Running, Ended: Exited},
	}
	for _, s := range states {
		for _, e := range events {
			got, err := s.On(e)
			want, ok := allowed[s][e]
			switch {
			case ok && (err != nil || got != want):
				t.Errorf("%s on %s: %s, %v", s, e, got, err)
			case !ok && (!errors.Is(err, errdefs.ErrPrecondition) || got != s):
				t.Errorf("%s on %s must be refused: %s, %v", s, e, got, err)
			}
		}
	}
}

func TestRecover(t *testing.T) {
	failed := Seen{Err: errors.New("no answer"), Alive: true}
	alive, dead := Seen{Alive: true}, Seen{}
	ended := Seen{Exit: &Exit{}}
	for _, tt := range []struct {
		state State
		seen  Seen
		want  Action
	}{
		{Creating, alive, Rollback},
		{Creating, failed, Rollback},
		{Created, dead, Adopt},
		{Created, alive, MarkStarted},
		{Created, ended, MarkStarted},
		{Created, failed, ReportUnknown},
		{Running, alive, Adopt},
		{Running, dead, MarkExited},
		{Running, ended, MarkExited},
		{Running, failed, ReportUnknown},
		{Exited, alive, Adopt},
		{Exited, failed, Adopt},
		{Unknown, alive, Adopt},
		{Unknown, dead, MarkExited},
		{Unknown, failed, ReportUnknown},
	} {
		if got := Recover(tt.state, tt.seen); got != tt.want {
			t.Errorf("%s, %+v: %s, want %s", tt.state, tt.seen, got, tt.want)
		}
	}
}

func TestLogPathStaysInItsDirectory(t *testing.T) {
	for _, tt := range []struct{ dir, path, want string }{
		{"/var/log/pods/x", "web/0.log", "/var/log/pods/x/web/0.log"},
		{"/var/log/pods/x", "../../../../etc/passwd", "/var/log/pods/x/etc/passwd"},
		{"", "web/0.log", ""},
		{"/var/log/pods/x", "", ""},
	} {
		r := Record{Config: Config{LogDirectory: tt.dir}}
		if got := r.LogPath(&Container{Config: ContainerConfig{LogPath: tt.path}}); got != tt.want {
			t.Errorf("%q + %q: %q, want %q", tt.dir, tt.path, got, tt.want)
		}
	}
}

func TestIDs(t *testing.T) {
	a, b := NewID(), NewContainerID()
	if len(a) != 64 || len(b) != 64 || string(a) == string(b) || len(a.Short()) != 13 || ID("ab").Short() != "ab" {
		t.Fatal(a, b)
	}
}
