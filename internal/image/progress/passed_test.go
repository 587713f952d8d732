package progress

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The phases of a whole pull are those that its slowest layer has come to: the
// second is unpacked while the first is still on its way.
func TestPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		p := NewTracker("app:1")
		a, b := digest.FromString("a"), digest.FromString("b")
		for _, step := range []func(){
			func() { p.Expect([]ocispec.Descriptor{{Digest: a, Size: 10}, {Digest: b, Size: 10}}) }, // after 1 s
			func() { p.Set(b, Unpacking, 1); p.Set(b, Done, 10) },
			func() { p.Set(a, Downloading, 5) },
			func() { p.Set(a, Unpacking, 1) }, // after 4 s
			func() { p.Set(a, Done, 10) },
			func() { p.Enter(Recording) }, // after 6 s
			func() { p.Enter(Recording) },
			func() { p.Finish() },
		} {
			time.Sleep(time.Second)
			step()
		}
		want := []Passage{
			{Resolving, begun}, {Downloading, begun.Add(time.Second)}, {Unpacking, begun.Add(4 * time.Second)}, {Recording, begun.Add(6 * time.Second)},
		}
		got := p.Passed()
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i, w := range want {
			if got[i].Phase != w.Phase || !got[i].Since.Equal(w.Since) {
				t.Errorf("%v, want %v", got[i], w)
			}
		}
	})
}

// Where all layers are here already, nothing is unpacked.
func TestPassedWithoutLayers(t *testing.T) {
	p := NewTracker("app:1")
	p.Expect([]ocispec.Descriptor{{Digest: digest.FromString("a"), Size: 10}})
	p.Enter(Recording)
	p.Finish()
	if got := p.Passed(); len(got) != 3 || got[0].Phase != Resolving || got[1].Phase != Downloading || got[2].Phase != Recording {
		t.Errorf("%v", got)
	}
}
