package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/fault"
	"fairlead.run/internal/image/inflight"
	"fairlead.run/internal/image/progress"
	"fairlead.run/internal/image/refs"
	"fairlead.run/internal/image/registry"
	"fairlead.run/internal/image/transfer"
)

var (
	pullLeased    = failpoint.Register("image.leased")
	pullResolved  = failpoint.Register("image.resolved")
	pullUnpacked  = failpoint.Register("image.unpacked")
	layersFlushed = failpoint.Register("image.flushed")
	nameRecorded  = failpoint.Register("image.recorded")
	imageListed   = failpoint.Register("image.listed")
	leaseEnded    = failpoint.Register("image.lease-ended")
)

// pull is one pull, from the registry to the records.
func (s *Store) pull(ctx context.Context, name string, req PullRequest, track *progress.Tracker) (img Image, err error) {
	named, err := refs.Parse(name)
	if err != nil {
		return Image{}, err
	}
	var tried registry.HostList
	defer tried.HangUp()
	defer func() {
		if err != nil {
			err = describePull(ctx, err, pullSource{named, tried.Names(), tried.Wrong(), platformName(req.Platform, s), s.cfg.Root})
		}
	}()
	ctx, stop := inflight.Watch(ctx, track, s.cfg.StallTimeout)
	defer stop()
	ctx = s.with(ctx)
	a := s.arrive()
	a.single = true
	defer func() { err = errors.Join(err, a.end(ctx, err != nil)) }()

	resolver := docker.NewResolver(docker.ResolverOptions{
		Hosts:   registry.Hosts(ctx, s.cfg.CertsDirs, registry.Credentials{Named: named, Auth: req.Auth, Files: s.cfg.DockerConfigs}, &tried),
		Headers: http.Header{"User-Agent": {"fairlead"}},
	})
	track.Begin()
	_, target, err := resolver.Resolve(ctx, name)
	track.End()
	if err != nil {
		return Image{}, err
	}
	if err := failpoint.Hit(pullResolved); err != nil {
		return Image{}, err
	}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return Image{}, err
	}
	fetch := transfer.Handler(a, fetcher, track)
	if err := s.unpackImage(ctx, unpackJob{target: target, platform: req.Platform, to: a, fetch: fetch, track: track}); err != nil {
		return Image{}, err
	}
	if err := failpoint.Hit(pullUnpacked); err != nil {
		return Image{}, err
	}
	names := []string{named.String()}
	if _, digested := named.(reference.Digested); !digested {
		names = append(names, reference.TrimNamed(named).Name()+"@"+target.Digest.String())
	}
	track.Enter(progress.Recording)
	img, err = s.record(ctx, a, recording{target, req.Platform, names})
	if err != nil {
		return Image{}, err
	}
	track.Finish()
	return img, nil
}

// recording is an image and what it is to be called.
type recording struct {
	target   ocispec.Descriptor
	platform string // empty: the store's
	names    []string
}

// record names an unpacked image and returns it as the store now has it.
func (s *Store) record(ctx context.Context, a *arrival, r recording) (Image, error) {
	if err := s.sync(); err != nil { // may take long, so before the lock
		return Image{}, err
	}
	if err := failpoint.Hit(layersFlushed); err != nil {
		return Image{}, err
	}
	s.records.Lock()
	defer s.records.Unlock()
	rec := images.Image{Target: ocispec.Descriptor{MediaType: r.target.MediaType, Digest: r.target.Digest, Size: r.target.Size}}
	if r.platform != "" {
		rec.Labels = map[string]string{labelPlatform: r.platform}
	}
	l, err := s.load(ctx, a, rec)
	if err != nil {
		return Image{}, err
	}
	// The record by id keeps the image when a tag moves on to another one. All
	// names or none: half an image would be on the disk and in no list.
	err = a.register(ctx, func(ctx context.Context) error {
		return s.putAll(ctx, rec, append(r.names, l.image.ID))
	})
	if err != nil {
		return Image{}, err
	}
	if err := s.refresh(ctx); err != nil {
		return Image{}, err
	}
	if err := failpoint.Hit(imageListed); err != nil {
		return Image{}, err
	}
	img, err := s.list.Load().find(l.image.ID)
	if err != nil {
		return Image{}, fmt.Errorf("%w: %w", err, errdefs.ErrInternal)
	}
	return *img, nil
}

func (s *Store) putAll(ctx context.Context, rec images.Image, names []string) error {
	for _, name := range names {
		rec.Name = name
		if err := s.put(ctx, rec); err != nil {
			return fmt.Errorf("record image %s: %w", name, err)
		}
		if err := failpoint.Hit(nameRecorded); err != nil {
			return err
		}
	}
	return nil
}

// put creates the record or points it to the new target.
func (s *Store) put(ctx context.Context, rec images.Image) error {
	store := s.images()
	old, err := store.Get(ctx, rec.Name)
	if fault.IsNotFound(err) {
		_, err = store.Create(ctx, rec)
		return err
	}
	if err != nil {
		return err
	}
	if old.Target.Digest == rec.Target.Digest && old.Labels[labelPlatform] == rec.Labels[labelPlatform] {
		return nil
	}
	_, err = store.Update(ctx, rec)
	return err
}
