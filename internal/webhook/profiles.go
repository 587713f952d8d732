package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/operator/validate"
)

// profileTime is how long what a CloudProfile says is remembered. It is some megabytes,
// changes a few times a week, and is asked for only by shoots that change their
// runtimes: so it is read when it is needed, and not watched.
const (
	profileTime  = 30 * time.Second
	mostProfiles = 100
)

// profiles are the CloudProfiles and NamespacedCloudProfiles of a garden cluster.
type profiles struct {
	client  *cluster.Client
	lookups *semaphore.Weighted

	mu    sync.Mutex
	known map[validate.ProfileRef]readProfile
}

type readProfile struct {
	*validate.CloudProfile
	at time.Time
}

func newProfiles(client *cluster.Client) *profiles {
	return &profiles{client: client, lookups: semaphore.NewWeighted(lookupsAtOnce), known: map[validate.ProfileRef]readProfile{}}
}

// Profile is what a profile says; nil if there is none.
func (p *profiles) Profile(ctx context.Context, ref validate.ProfileRef, fresh bool) (*validate.CloudProfile, bool, error) {
	resource := map[string]string{validate.KindCloudProfile: "cloudprofiles", validate.KindNamespacedCloudProfile: "namespacedcloudprofiles"}[ref.Kind]
	if resource == "" || len(content.IsPathSegmentName(ref.Name)) > 0 || len(content.IsPathSegmentName(ref.Namespace)) > 0 {
		return nil, false, nil // no API server has such a one
	}
	if !fresh {
		if known := p.remembered(ref); known != nil {
			return known, true, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	if err := p.lookups.Acquire(ctx, 1); err != nil {
		return nil, false, fmt.Errorf("get %s: %w: %w", ref, err, errdefs.ErrUnavailable)
	}
	defer p.lookups.Release(1)
	at := "/apis/core.gardener.cloud/v1beta1/"
	if ref.Namespace != "" {
		at += "namespaces/" + ref.Namespace + "/"
	}
	text, err := p.client.JSON(ctx, at+resource+"/"+ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case apierrors.IsForbidden(err):
		return nil, false, fmt.Errorf("get %s: the role of this webhook needs get of %s in core.gardener.cloud: %w: %w", ref, resource, err, errdefs.ErrUnavailable)
	case err != nil:
		return nil, false, fmt.Errorf("get %s: %w: %w", ref, err, errdefs.ErrUnavailable)
	}
	read, err := validate.ReadProfile(ref, text, time.Now())
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	if read != nil {
		p.remember(ref, read)
	}
	return read, false, nil
}

func (p *profiles) remembered(ref validate.ProfileRef) *validate.CloudProfile {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.known[ref]; ok && time.Since(known.at) < profileTime {
		return known.CloudProfile
	}
	return nil
}

func (p *profiles) remember(ref validate.ProfileRef, read *validate.CloudProfile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= mostProfiles {
		clear(p.known)
	}
	p.known[ref] = readProfile{read, time.Now()}
}
