package inner

import (
	"log/slog"
	"testing"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
)

// While others start, the ends of all children are kept, also of those whose pid a
// runtime command has by now.
func TestExpectAfterAnotherOfTheSamePID(t *testing.T) {
	records, err := record.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]uint64{"with its start": 20, "that ended before it could be looked at": 0} {
		table := newTable(records, slog.New(slog.DiscardHandler))
		if _, _, err := table.reserve("a", record.Spec{Kind: monitorv1.KindContainer}); err != nil {
			t.Fatal(err)
		}
		table.childEnded(linux.Ended{PID: 5, Start: 10, Code: 1, At: time.Now()})
		began := time.Now()
		done := table.Expect(record.Ident{PID: 5, Start: start}, began)
		select {
		case e := <-done:
			t.Fatalf("%s: it ends as another has: %+v", name, e)
		default:
		}
		table.childEnded(linux.Ended{PID: 5, Start: 20, Code: 7, At: time.Now()})
		if e := <-done; e.Code != 7 {
			t.Errorf("%s: it ended with %+v", name, e)
		}
		table.childEnded(linux.Ended{PID: 6, Start: 21, Code: 8, At: time.Now()})
		if e := <-table.Expect(record.Ident{PID: 6, Start: 21}, began); e.Code != 8 {
			t.Errorf("%s: one that has ended already: %+v", name, e)
		}
	}
}
