package image

import (
	"context"
	"fmt"

	"fairlead.run/internal/image/inflight"
	"fairlead.run/internal/image/progress"
	"fairlead.run/internal/image/refs"
	"fairlead.run/internal/image/registry"
)

// Auth is what a caller proves his right to an image with.
type Auth = registry.Auth

// The state of a pull or an import, for whoever wants to show it.
type (
	Progress      = progress.State
	LayerProgress = progress.Layer
	Phase         = progress.Phase
	Passage       = progress.Passage
)

// The phases, in order.
const (
	PhaseResolving   = progress.Resolving
	PhaseWaiting     = progress.Waiting
	PhaseDownloading = progress.Downloading
	PhaseUnpacking   = progress.Unpacking
	PhaseRecording   = progress.Recording
	PhaseDone        = progress.Done
)

// PullRequest says what to pull and how.
type PullRequest struct {
	Ref      string         // as a user writes it
	Auth     *Auth          // nil: credentials come from docker config files, if any
	Platform string         // "linux/arm64"; empty: the store's
	Progress func(Progress) // called about ten times a second on the caller's goroutine, and once at the end
	// Passed, unless nil, is called once, on the caller's goroutine when its wait is
	// over: with all phases that the pull has come to, whoever began it.
	Passed func([]Passage)
	// Stay has the pull go on after its last caller has given up, for one who
	// may come back and ask again.
	Stay bool
}

// Pull fetches the image, unpacks it and names it. If it is here already and
// the registry's copy has not changed, nothing is fetched.
//
// Pulls of one name with the same credentials and platform join: they are one
// operation, which goes on until it is done, or until its last caller has given
// up and none wanted it to stay.
// A pull that fails or is given up leaves nothing behind.
func (s *Store) Pull(ctx context.Context, req PullRequest) (Image, error) {
	name, err := refs.Normalize(req.Ref)
	if err != nil {
		return Image{}, fmt.Errorf("pull image: %w", err)
	}
	if _, err := s.matcher(req.Platform); err != nil {
		return Image{}, fmt.Errorf("pull image %s: %w", name, err)
	}
	img, err := s.flying.Do(ctx, inflight.Task{
		Key: pullKey(name, req), Verb: "pull", Name: name, Stay: req.Stay, Report: req.Progress, Passed: req.Passed,
	}, func(ctx context.Context, track *progress.Tracker) (Image, error) {
		return s.pull(ctx, name, req, track)
	})
	if err != nil {
		return Image{}, err
	}
	return img.clone(), nil
}

// Operation is something that the store is doing at this moment.
type Operation = inflight.Operation

// follow lists what the caller does in one stage, until it calls done.
func (s *Store) follow(verb, name string, at Phase) (done func()) {
	return s.flying.Follow(verb, name, func() Progress { return Progress{Ref: name, Phase: at} })
}

// Operations returns what is in flight, the oldest first.
func (s *Store) Operations() []Operation { return s.flying.List() }

// pullKey tells pulls apart. Credentials are part of it: whoever joins must not
// get by another's credentials what his own would not give him.
func pullKey(name string, req PullRequest) string {
	return name + " " + req.Platform + " " + req.Auth.Fingerprint()
}
