package daemon

import (
	"context"
	"time"

	"fairlead.run/internal/criserver"
	"fairlead.run/internal/image"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/telemetry"
)

// pulls is the image store in the terms of the CRI server, with each wait for a
// pull told to the core: it remembers those for pods, and has them counted and
// traced as its own operations are.
type pulls struct {
	criImages
	tell func(ops.Ended)
}

// Pull implements criserver.Images.
func (p pulls) Pull(ctx context.Context, r criserver.ImagePull) (string, error) {
	// A kubelet gives a slow pull up and asks again: it is to find it further on.
	req := image.PullRequest{Ref: r.Ref, Stay: true}
	if a := r.Auth; a != nil {
		req.Auth = &image.Auth{
			RegistryToken: a.RegistryToken, IdentityToken: a.IdentityToken,
			Username: a.Username, Password: a.Password, Auth: a.Auth, ServerAddress: a.ServerAddress,
		}
	}
	e := ops.Ended{Handler: r.Handler}
	if r.Pod != (pod.Metadata{}) {
		e.For = []pod.Metadata{r.Pod}
	}
	img, err := p.pull(ctx, req, e)
	return img.ID, err
}

// pull pulls, and fills in and tells what is known of it when it is over.
func (p pulls) pull(ctx context.Context, req image.PullRequest, e ops.Ended) (image.Image, error) {
	e.Verb, e.Kind, e.Name = ops.Pull, ops.KindImage, req.Ref
	e.Parent, e.Began = telemetry.Parent(ctx), time.Now()
	var passed []image.Passage
	req.Passed = func(all []image.Passage) { passed = all }
	img, err := p.store.Pull(ctx, req)
	now := time.Now()
	e.Took, e.Err, e.Steps = now.Sub(e.Began), err, pullSteps(passed, e.Began, now)
	p.tell(e)
	return img, err
}

// pullStages are the phases of a pull in the words in which the stages of
// operations are told.
var pullStages = map[image.Phase]string{
	image.PhaseResolving:   "resolve name and manifest",
	image.PhaseDownloading: "fetch layers",
	image.PhaseUnpacking:   "unpack layers",
	image.PhaseRecording:   "record image",
}

// pullSteps are the stages of a pull between two times: who joined one that was
// under way has waited for the rest of it only.
func pullSteps(passed []image.Passage, from, to time.Time) []ops.Step {
	var out []ops.Step
	for i, p := range passed {
		begin, end := p.Since, to
		if i+1 < len(passed) {
			end = passed[i+1].Since
		}
		if begin.Before(from) {
			begin = from
		}
		if took := end.Sub(begin); took > 0 {
			out = append(out, ops.Step{Stage: pullStages[p.Phase], MS: float64(took) / float64(time.Millisecond)})
		}
	}
	return out
}
