package images

import (
	"context"
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Puller pulls one image and returns the reference to run it by. It returns
// soon after its context has ended.
type Puller interface {
	Pull(ctx context.Context, p Pull) (string, error)
}

// Pull says what to pull.
type Pull struct {
	Image string
	Auth  *Auth // nil: none
	// For are the pods that wait for it.
	For []*runtimeapi.PodSandboxMetadata
	// Sandbox is the first one's configuration, where it is known.
	Sandbox *runtimeapi.PodSandboxConfig
}

// CRIPuller pulls by the CRI alone, which tells no progress and knows of one pod
// for each pull.
type CRIPuller struct {
	Images runtimeapi.ImageServiceClient
}

// Pull implements Puller.
func (p CRIPuller) Pull(ctx context.Context, pull Pull) (string, error) {
	req := &runtimeapi.PullImageRequest{
		Image:         &runtimeapi.ImageSpec{Image: pull.Image, Annotations: pull.Sandbox.GetAnnotations()},
		SandboxConfig: pull.Sandbox,
	}
	if pull.Sandbox == nil && len(pull.For) > 0 {
		req.SandboxConfig = &runtimeapi.PodSandboxConfig{Metadata: pull.For[0]}
	}
	if auth := pull.Auth; auth != nil {
		req.Auth = &runtimeapi.AuthConfig{Username: auth.Username, Password: auth.Password, IdentityToken: auth.IdentityToken}
	}
	resp, err := p.Images.PullImage(ctx, req)
	if err != nil {
		return "", err
	}
	return resp.GetImageRef(), nil
}

// Try pulls with each credential in turn until one works, and without any if
// there is none. It returns which one did: nil for none.
func Try(ctx context.Context, p Puller, pull Pull, credentials []Credential) (ref string, by *Credential, err error) {
	if len(credentials) == 0 {
		ref, err = p.Pull(ctx, pull)
		return ref, nil, err
	}
	var errs []error
	for i := range credentials {
		pull.Auth = &credentials[i].Auth
		ref, err := p.Pull(ctx, pull)
		if err == nil {
			return ref, &credentials[i], nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return "", nil, errors.Join(errs...)
}
