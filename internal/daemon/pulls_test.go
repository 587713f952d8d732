package daemon

import (
	"reflect"
	"testing"
	"time"

	"fairlead.run/internal/image"
	"fairlead.run/internal/lifecycle/ops"
)

// A pull has the stages of the time in which its caller waited, which is less than
// all of them for one who joined it.
func TestPullSteps(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }
	passed := []image.Passage{
		{Phase: image.PhaseResolving, Since: at(0)},
		{Phase: image.PhaseDownloading, Since: at(30)},
		{Phase: image.PhaseUnpacking, Since: at(100)},
		{Phase: image.PhaseRecording, Since: at(180)},
	}
	for name, tt := range map[string]struct {
		passed   []image.Passage
		from, to time.Time
		want     []ops.Step
	}{
		"whole": {passed, at(0), at(200), []ops.Step{
			{Stage: "resolve name and manifest", MS: 30}, {Stage: "fetch layers", MS: 70}, {Stage: "unpack layers", MS: 80}, {Stage: "record image", MS: 20},
		}},
		"joined":   {passed, at(90), at(200), []ops.Step{{Stage: "fetch layers", MS: 10}, {Stage: "unpack layers", MS: 80}, {Stage: "record image", MS: 20}}},
		"given up": {passed[:2], at(0), at(35), []ops.Step{{Stage: "resolve name and manifest", MS: 30}, {Stage: "fetch layers", MS: 5}}},
		"refused":  {nil, at(0), at(1), nil},
	} {
		if got := pullSteps(tt.passed, tt.from, tt.to); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
