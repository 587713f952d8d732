package daemon

import (
	"context"
	"fmt"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/audit"
	"fairlead.run/internal/daemon/overhead"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/internal/image/refs"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
)

// admin serves what the command line needs beside the CRI.
type admin struct {
	pods     *lifecycle.Core
	images   *image.Store
	pulls    pulls
	handlers *runtime.Registry[lifecycle.Handler]
	changes  *changer
	meter    *overhead.Meter
	auditor  func(verifyContent bool) *audit.Auditor
}

// Import implements adminv1.Server.
func (a admin) Import(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.ImportRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return badRequest("import", err)
	}
	imgs, err := a.images.Import(ctx, &adminv1.Reader{S: s}, image.ImportOptions{Ref: req.Ref})
	if err != nil {
		return err
	}
	var reply adminv1.ImportReply
	for i := range imgs {
		reply.Images = append(reply.Images, adminImage(&imgs[i]))
	}
	return adminv1.SendJSON(s, reply)
}

// Export implements adminv1.Server.
func (a admin) Export(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.ExportRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return badRequest("export", err)
	}
	if len(req.Refs) == 0 {
		return fmt.Errorf("export images: no image is named: %w", errdefs.ErrInvalidArgument)
	}
	return a.images.Export(ctx, adminv1.Writer{S: s}, req.Refs...)
}

// Pull implements adminv1.Server. A client that does not take progress any
// more is noticed at the end; the pull may have others who wait for it. The
// first event says that the name is one.
func (a admin) Pull(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.PullRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return badRequest("pull", err)
	}
	if _, err := refs.Normalize(req.Ref); err != nil {
		return fmt.Errorf("pull image: %w", err)
	}
	if err := adminv1.SendJSON(s, adminv1.PullEvent{Phase: string(image.PhaseResolving)}); err != nil {
		return err
	}
	pull := image.PullRequest{Ref: req.Ref, Platform: req.Platform, Progress: func(p image.Progress) { _ = adminv1.SendJSON(s, pullEvent(p)) }}
	if c := req.Auth; c != nil {
		pull.Auth = &image.Auth{
			Username: c.Username, Password: c.Password, Auth: c.Auth, ServerAddress: c.ServerAddress,
			IdentityToken: c.IdentityToken, RegistryToken: c.RegistryToken,
		}
	}
	var of ops.Ended
	for _, p := range req.For {
		of.For = append(of.For, pod.Metadata{Name: p.Name, Namespace: p.Namespace, UID: p.UID})
	}
	img, err := a.pulls.pull(ctx, pull, of)
	if err != nil {
		return err
	}
	done := adminImage(&img)
	return adminv1.SendJSON(s, adminv1.PullEvent{Phase: string(image.PhaseDone), Image: &done})
}

// Remove implements adminv1.Server. Other than the CRI's call of that name it
// takes a name off an image that has others.
func (a admin) Remove(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.RemoveRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return badRequest("remove", err)
	}
	gone, err := a.images.Untag(ctx, req.Ref)
	if err != nil {
		return err
	}
	return adminv1.SendJSON(s, adminv1.RemoveReply{Untagged: gone.Names, Removed: gone.ID})
}

func badRequest(verb string, err error) error {
	return fmt.Errorf("%s images: read the request: %w (%w)", verb, err, errdefs.ErrInvalidArgument)
}

func adminImage(i *image.Image) adminv1.Image {
	return adminv1.Image{ID: i.ID, Tags: i.RepoTags, Size: i.Size}
}

func pullEvent(p image.Progress) adminv1.PullEvent {
	e := adminv1.PullEvent{Phase: string(p.Phase)}
	for _, l := range p.Layers {
		e.Layers = append(e.Layers, adminv1.Layer{Digest: l.Digest, Phase: string(l.Phase), Done: l.Done, Total: l.Total})
	}
	return e
}
