package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/origin"
)

// What a bundle says is enough to tell whose it is, when no record does.
func TestTraces(t *testing.T) {
	tc := plain(t)
	tc.record.ID, tc.record.Handler = pod.NewID(), "runc"
	tc.record.Config.Metadata = pod.Metadata{Name: "web", Namespace: "default", UID: "u", Attempt: 3}
	tc.req.Container.ID, tc.req.Container.Image.ID = pod.NewContainerID(), "sha256:1"
	tc.req.Container.Image.Volumes = []string{"", "sha256:2", "", "sha256:3"}
	tc.c.Metadata.Attempt = 2
	tc.record.Config.Labels = map[string]string{"io.kubernetes.pod.uid": "u", "odd": "\"\n"}
	tc.c.Labels = map[string]string{"io.kubernetes.container.name": "app"}
	b, err := New(tc.cfg)
	must(t, err)
	_, err = b.Write(t.Context(), tc.req)
	must(t, err)
	_, err = b.WriteSandbox(t.Context(), tc.record, tc.req.Handler)
	must(t, err)
	known := string(pod.NewID())
	base := filepath.Join(tc.cfg.StateDir, "containers")
	must(t, os.Mkdir(filepath.Join(base, known), 0o700))
	must(t, os.Mkdir(filepath.Join(base, "something-else"), 0o700))
	isKnown := func(id string) bool { return id == known }
	reader := origin.Reader{StateDir: tc.cfg.StateDir}
	got, err := reader.Traces(t.Context(), isKnown)
	must(t, err)
	of := pod.Trace{Pod: tc.record.ID, Metadata: tc.record.Config.Metadata, Labels: tc.record.Config.Labels, Handler: "runc"}
	own, ctr := of, of
	own.Pause = true
	ctr.Container = &pod.ContainerTrace{ID: tc.req.Container.ID, Metadata: tc.c.Metadata, Labels: tc.c.Labels, Image: "sha256:1", Volumes: []string{"sha256:2", "sha256:3"}}
	pausesLast := cmpopts.SortSlices(func(a, b pod.Trace) bool { return !a.Pause && b.Pause })
	if d := cmp.Diff([]pod.Trace{ctr, own}, got, pausesLast, cmpopts.IgnoreFields(pod.Trace{}, "Made")); d != "" {
		t.Error(d)
	}
	for _, tr := range got {
		if tr.Made.IsZero() {
			t.Error("nobody knows when it was made")
		}
	}
	// One that says nothing hides no other.
	mute := pod.NewContainerID()
	must(t, os.Mkdir(filepath.Join(base, string(mute)), 0o700))
	if got, err = reader.Traces(t.Context(), isKnown); err == nil || !strings.Contains(err.Error(), mute.Short()) || len(got) != 2 {
		t.Errorf("%v, %d traces", err, len(got))
	}
	must(t, os.RemoveAll(base))
	if got, err = reader.Traces(t.Context(), isKnown); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}
