package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/inflight"
	"fairlead.run/internal/image/progress"
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
	named, err := parse(name)
	if err != nil {
		return Image{}, err
	}
	var tried registry.HostList
	defer tried.HangUp()
	defer func() {
		if err != nil {
			err = describePull(ctx, err, pullSource{named, tried.Names(), platformName(req.Platform, s), s.cfg.Root})
		}
	}()
	ctx, stop := s.watch(ctx, track)
	defer stop()
	ctx, done, err := s.lease(s.with(ctx))
	if err != nil {
		return Image{}, err
	}
	defer func() { err = errors.Join(err, done(err != nil)) }()

	if err := failpoint.Hit(pullLeased); err != nil {
		return Image{}, err
	}
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
	fetch := transfer.Handler(s.content(), fetcher, track)
	if err := s.unpackImage(ctx, unpackJob{target: target, platform: req.Platform, fetch: fetch, track: track}); err != nil {
		return Image{}, err
	}
	if err := failpoint.Hit(pullUnpacked); err != nil {
		return Image{}, err
	}
	names := []string{named.String()}
	if _, digested := named.(reference.Digested); !digested {
		names = append(names, reference.TrimNamed(named).Name()+"@"+target.Digest.String())
	}
	img, err = s.record(ctx, target, req.Platform, names)
	if err != nil {
		return Image{}, err
	}
	track.Finish()
	return img, nil
}

// watch gives up the pull when a transfer has brought nothing for
// StallTimeout. Its goroutine ends with the returned function.
func (s *Store) watch(ctx context.Context, track *progress.Tracker) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(s.cfg.StallTimeout/8 + 1)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if track.Idle() > s.cfg.StallTimeout {
				cancel(inflight.Ended(fmt.Sprintf("no data arrived for %s; the registry or the network to it hangs (%s, %s after the start)",
					s.cfg.StallTimeout, track.Snapshot(), time.Since(begun).Round(time.Second))))
			}
		}
	}()
	return ctx, func() { cancel(nil); <-stopped }
}

// lease keeps everything that is made or found under the returned context from
// being collected. The returned function ends it; with failed set it also
// takes away what nobody else needs.
func (s *Store) lease(ctx context.Context) (context.Context, func(failed bool) error, error) {
	id := rand.Text()
	s.held.Add(id) // before there is one, or an audit would take it for a leftover
	l, err := s.leases.Create(ctx, leases.WithID(id))
	if err != nil {
		s.held.Drop(id)
		return ctx, nil, fmt.Errorf("protect a pull from garbage collection: %w", err)
	}
	return leases.WithLease(ctx, l.ID), func(failed bool) error {
		ctx := context.WithoutCancel(ctx)
		defer s.held.Drop(id)
		if err := s.leases.Delete(ctx, l); err != nil {
			return fmt.Errorf("end the protection of a pull: %w", err)
		}
		if err := failpoint.Hit(leaseEnded); err != nil {
			return err
		}
		if failed {
			return s.collect(ctx)
		}
		return nil
	}, nil
}

// record names an unpacked image and returns it as the store now has it.
func (s *Store) record(ctx context.Context, target ocispec.Descriptor, platform string, names []string) (Image, error) {
	if err := s.sync(); err != nil { // may take long, so before the lock
		return Image{}, err
	}
	if err := failpoint.Hit(layersFlushed); err != nil {
		return Image{}, err
	}
	s.records.Lock()
	defer s.records.Unlock()
	rec := images.Image{Target: ocispec.Descriptor{MediaType: target.MediaType, Digest: target.Digest, Size: target.Size}}
	if platform != "" {
		rec.Labels = map[string]string{labelPlatform: platform}
	}
	l, err := s.load(ctx, rec)
	if err != nil {
		return Image{}, err
	}
	// The record by id keeps the image when a tag moves on to another one. All
	// names or none: half an image would be on the disk and in no list.
	err = s.meta.Update(func(tx *bolt.Tx) error {
		return s.putAll(boltutil.WithTransaction(ctx, tx), rec, append(names, l.image.ID))
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

// put creates the record or points it to the new target. A pin stays.
func (s *Store) put(ctx context.Context, rec images.Image) error {
	store := s.images()
	old, err := store.Get(ctx, rec.Name)
	if isNotFound(err) {
		_, err = store.Create(ctx, rec)
		return err
	}
	if err != nil {
		return err
	}
	if v, ok := old.Labels[labelPinned]; ok {
		labels := map[string]string{labelPinned: v}
		for k, v := range rec.Labels {
			labels[k] = v
		}
		rec.Labels = labels
	}
	if old.Target.Digest == rec.Target.Digest && old.Labels[labelPlatform] == rec.Labels[labelPlatform] {
		return nil
	}
	_, err = store.Update(ctx, rec)
	return err
}
