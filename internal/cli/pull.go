package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/node/images"
)

// puller pulls with progress where the runtime is Fairlead, and by the CRI
// alone elsewhere.
type puller struct {
	session  *session
	display  *display
	platform string // "linux/arm64"; "" is this machine's
}

// Pull implements images.Puller.
func (p *puller) Pull(ctx context.Context, pull images.Pull) (string, error) {
	bar := p.display.begin(pull.Image)
	ref, err := p.pull(ctx, pull, bar)
	bar.end(err)
	return ref, err
}

func (p *puller) pull(ctx context.Context, pull images.Pull, bar *bar) (string, error) {
	if p.session.Conn() != nil && p.session.Name == "fairlead" {
		img, err := adminPull(ctx, p.session, p.adminRequest(pull), bar.update)
		if status.Code(err) != codes.Unimplemented {
			return img.ID, err
		}
	}
	if p.platform != "" {
		return "", fmt.Errorf("pull %s for %s: the CRI has no field for a platform, and this runtime has no other way; leave --platform out, or pull by Fairlead's own daemon", pull.Image, p.platform)
	}
	bar.show()
	return images.CRIPuller{Images: p.session.Images}.Pull(ctx, pull)
}

func (p *puller) adminRequest(pull images.Pull) adminv1.PullRequest {
	r := adminv1.PullRequest{Ref: pull.Image, Auth: adminAuth(pull.Auth), Platform: p.platform}
	for _, m := range pull.For {
		r.For = append(r.For, adminv1.PodName{Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUid()})
	}
	return r
}

func adminAuth(a *images.Auth) *adminv1.Auth {
	if a == nil {
		return nil
	}
	return &adminv1.Auth{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken}
}

// adminPull pulls by the admin service.
func adminPull(ctx context.Context, s *session, req adminv1.PullRequest, update func(adminv1.PullEvent)) (adminv1.Image, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := adminv1.Open(ctx, s.Conn(), "Pull")
	if err != nil {
		return adminv1.Image{}, err
	}
	if err := adminv1.SendJSON(stream, req); err != nil && !errors.Is(err, io.EOF) {
		return adminv1.Image{}, err
	}
	if err := stream.CloseSend(); err != nil {
		return adminv1.Image{}, err
	}
	for {
		var e adminv1.PullEvent
		if err := adminv1.ReceiveJSON(stream, &e); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the runtime ended the pull without an answer: %w", io.ErrUnexpectedEOF)
			}
			return adminv1.Image{}, err
		}
		update(e)
		if e.Image != nil {
			return *e.Image, nil
		}
	}
}
