package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/node/runner"
)

// puller pulls with progress where the runtime is Fairlead, and by the CRI
// alone elsewhere.
type puller struct {
	session *session
	display *display
}

// Pull implements runner.Puller.
func (p *puller) Pull(ctx context.Context, image string, auth *runner.Auth) (string, error) {
	bar := p.display.begin(image)
	ref, err := p.pull(ctx, image, auth, bar)
	bar.end(err)
	return ref, err
}

func (p *puller) pull(ctx context.Context, image string, auth *runner.Auth, bar *bar) (string, error) {
	if p.session.Conn() != nil && p.session.Name == "fairlead" {
		img, err := adminPull(ctx, p.session, adminv1.PullRequest{Ref: image, Auth: adminAuth(auth)}, bar.update)
		if status.Code(err) != codes.Unimplemented {
			return img.ID, err
		}
	}
	bar.show()
	return runner.CRIPuller{Images: p.session.Images}.Pull(ctx, image, auth)
}

func adminAuth(a *runner.Auth) *adminv1.Auth {
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
