package inflight_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/image/inflight"
	"fairlead.run/internal/image/progress"
	"fairlead.run/internal/image/transfer"
)

const patience = 5 * time.Minute

// drip is a blob that arrives byte by byte, with a pause before each, and whose
// reader has to be let go by ending the context.
type drip struct {
	done  <-chan struct{}
	left  string
	pause time.Duration
	stop  int // after how many bytes nothing comes any more; 0: never
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == "" {
		return 0, io.EOF
	}
	pause := d.pause
	if d.stop > 0 {
		if d.stop--; d.stop == 0 {
			pause = time.Hour
		}
	}
	select {
	case <-d.done:
		return 0, context.Canceled
	case <-time.After(pause):
	}
	p[0], d.left = d.left[0], d.left[1:]
	return 1, nil
}

func (d *drip) Close() error { return nil }

// fetch brings a layer that arrives in that way, and says how long it took.
func fetch(t *testing.T, pause time.Duration, stop int) (desc ocispec.Descriptor, took time.Duration, err error) {
	t.Helper()
	const body = "a layer that arrives in drips"
	store, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	desc = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromString(body), Size: int64(len(body))}
	begun := time.Now()
	track := progress.NewTracker("app:1")
	track.Expect([]ocispec.Descriptor{desc})
	ctx, end := inflight.Watch(t.Context(), track, patience)
	defer end()
	from := remotes.FetcherFunc(func(ctx context.Context, _ ocispec.Descriptor) (io.ReadCloser, error) {
		return &drip{done: ctx.Done(), left: body, pause: pause, stop: stop}, nil
	})
	_, err = transfer.Handler(store, from, track)(ctx, desc)
	if err != nil {
		err = context.Cause(ctx)
	}
	return desc, time.Since(begun), err
}

// A registry that is slow and yet sends something is waited for, however long
// that takes.
func TestSlowIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desc, took, err := fetch(t, patience-time.Second, 0)
		if want := time.Duration(desc.Size) * (patience - time.Second); err != nil || took < want {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// One that sends nothing any more is given up after that time, and the error
// says at which layer.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desc, took, err := fetch(t, time.Minute, 11)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		for _, want := range []string{"no data arrived for 5m0s", "layer " + desc.Digest.String() + ", 10 of 29 bytes"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q: %v", want, err)
			}
		}
		if took < 10*time.Minute+patience || took > 10*time.Minute+patience+patience/4 {
			t.Errorf("given up after %s", took)
		}
	})
}

// What waits for no registry does not stall: disks and other pulls may take
// their time.
func TestNoStallWithoutTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := inflight.Watch(t.Context(), progress.NewTracker("app:1"), patience)
		defer end()
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Error(context.Cause(ctx))
		}
	})
}

// Before the layers are known, the error says what was waited for.
func TestStallOfDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		track := progress.NewTracker("app:1")
		track.Begin()
		ctx, end := inflight.Watch(t.Context(), track, patience)
		defer end()
		<-ctx.Done()
		if err := context.Cause(ctx); !strings.Contains(err.Error(), "hangs at the image's manifest") {
			t.Error(err)
		}
	})
}
