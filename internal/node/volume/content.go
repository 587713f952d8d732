package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/clock"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/volume/files"
	"fairlead.run/internal/node/volume/unsupported"
)

// The modes of Kubernetes' documentation.
const (
	defaultMode = 0o644
	ownedToken  = 0o600 // a token that one user of the pod, or its group, is to read
)

// defaultExpiry is how long a token is good for if its source does not say.
const defaultExpiry = int64(3600)

// hasContent says whether a volume is files that come from objects.
func hasContent(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// content writes the files of a volume. When they cannot be had and the volume is
// there already, its content stays, so that a restart of the agent does not hang on
// an object that is gone: Update tells.
func (s *Set) content(ctx context.Context, v *corev1.Volume) (*mounted, error) {
	m := &mounted{path: s.memoryPath(v.Name), own: true, readOnly: true}
	collect, filled := s.collect, s.folder(v, m).Filled()
	if filled {
		collect = s.collectSoon
	}
	list, _, err := collect(ctx, v)
	if err != nil && filled {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = s.folder(v, m).Publish(list)
	return m, err
}

// How long objects and tokens are waited for while there is older content: of all volumes
// together, and at least of each. What restarts containers waits meanwhile.
const (
	soon      = 5 * time.Second
	soonAtAll = 100 * time.Millisecond
)

// collectSoon is collect where the pod can go on without.
func (s *Set) collectSoon(ctx context.Context, v *corev1.Volume) (map[string]files.File, time.Time, error) {
	ctx, done := s.soon(ctx)
	defer done()
	return s.collect(ctx, v)
}

// soon bounds what the pod can go on without; done is called when it was had, or not.
func (s *Set) soon(ctx context.Context) (_ context.Context, done func()) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, max(soon-s.waited, soonAtAll))
	return ctx, func() {
		cancel()
		s.waited += time.Since(began)
	}
}

func (s *Set) folder(v *corev1.Volume, m *mounted) files.Folder {
	return files.Folder{Path: m.path, Group: s.group(), Places: s.places(v.Name)}
}

// collector gathers the files of one volume.
type collector struct {
	files map[string]files.File
	named map[string]bool // paths that somebody wrote down
	mode  os.FileMode
	next  time.Time // when to look again; zero for never
}

// collect returns the files of a volume, and when a token among them is to be
// renewed.
func (s *Set) collect(ctx context.Context, v *corev1.Volume) (map[string]files.File, time.Time, error) {
	c := &collector{files: map[string]files.File{}, named: map[string]bool{}, mode: defaultMode}
	mode, sources := projections(v)
	c.mode = c.modeOf(mode)
	for i, p := range sources {
		err := s.project(ctx, c, p)
		if err != nil && v.Projected != nil {
			err = fmt.Errorf("source %d: %w", i, err)
		}
		if err != nil {
			return nil, time.Time{}, err
		}
	}
	return c.files, c.next, c.check()
}

// projections writes every volume with content as a projected one.
func projections(v *corev1.Volume) (mode *int32, sources []corev1.VolumeProjection) {
	switch {
	case v.ConfigMap != nil:
		m := v.ConfigMap
		return m.DefaultMode, []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: m.LocalObjectReference, Items: m.Items, Optional: m.Optional,
		}}}
	case v.Secret != nil:
		m := v.Secret
		return m.DefaultMode, []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: m.SecretName}, Items: m.Items, Optional: m.Optional,
		}}}
	case v.DownwardAPI != nil:
		return v.DownwardAPI.DefaultMode, []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}}
	}
	return v.Projected.DefaultMode, v.Projected.Sources
}

func (s *Set) project(ctx context.Context, c *collector, p corev1.VolumeProjection) error {
	switch {
	case p.ConfigMap != nil:
		data, err := s.object(ctx, "ConfigMap", p.ConfigMap.Name)
		if err != nil {
			return err
		}
		return c.object(origin{"ConfigMap " + p.ConfigMap.Name, data, p.ConfigMap.Items, p.ConfigMap.Optional})
	case p.Secret != nil:
		data, err := s.object(ctx, "Secret", p.Secret.Name)
		if err != nil {
			return err
		}
		return c.object(origin{"Secret " + p.Secret.Name, data, p.Secret.Items, p.Secret.Optional})
	case p.DownwardAPI != nil:
		return s.downward(c, p.DownwardAPI.Items)
	case p.ServiceAccountToken != nil:
		return s.token(ctx, c, p.ServiceAccountToken)
	}
	return unsupported.Source(p)
}

// object is the data of an object, or nil if there is none. An immutable one is
// looked at once.
func (s *Set) object(ctx context.Context, kind, name string) (map[string][]byte, error) {
	if data, ok := s.frozen[kind+" "+name]; ok {
		return data, nil
	}
	if s.spec.Objects == nil {
		return nil, fmt.Errorf("nobody knows of objects here: %w", errdefs.ErrInternal)
	}
	data, immutable := map[string][]byte{}, (*bool)(nil)
	switch kind {
	case "ConfigMap":
		m, err := s.spec.Objects.ConfigMap(ctx, s.spec.Pod.Namespace, name)
		if err != nil || m == nil {
			return nil, err
		}
		immutable = m.Immutable
		for k, v := range m.Data {
			data[k] = []byte(v)
		}
		for k, v := range m.BinaryData {
			data[k] = v
		}
	case "Secret":
		m, err := s.spec.Objects.Secret(ctx, s.spec.Pod.Namespace, name)
		if err != nil || m == nil {
			return nil, err
		}
		immutable = m.Immutable
		for k, v := range m.Data {
			data[k] = v
		}
	}
	if immutable != nil && *immutable {
		s.frozen[kind+" "+name] = data
	}
	return data, nil
}

// origin is an object, and what a volume wants of it.
type origin struct {
	name     string
	data     map[string][]byte // nil if the object is missing
	items    []corev1.KeyToPath
	optional *bool
}

func (c *collector) object(s origin) error {
	may := s.optional != nil && *s.optional
	if s.data == nil && !may {
		return fmt.Errorf("%s is missing; create it, or make it optional: %w", s.name, errdefs.ErrNotFound)
	}
	if len(s.items) == 0 {
		for k, v := range s.data {
			if err := c.put(k, files.File{Data: v, Mode: c.mode}); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	for _, item := range s.items {
		v, ok := s.data[item.Key]
		if !ok && may {
			continue
		}
		if !ok {
			return fmt.Errorf("%s has no key %q: %w", s.name, item.Key, errdefs.ErrNotFound)
		}
		if err := c.name(item.Path, files.File{Data: v, Mode: c.modeOf(item.Mode)}); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// name adds a file by a path that somebody wrote down: two of the same are a
// mistake. Of files that come by the keys of objects, a later one replaces an
// earlier one, as in a kubelet.
func (c *collector) name(path string, f files.File) error {
	if c.named[filepath.Clean(path)] {
		return fmt.Errorf("path %q is that of another file in the volume: %w", path, errdefs.ErrInvalidArgument)
	}
	c.named[filepath.Clean(path)] = true
	return c.put(path, f)
}

func (c *collector) put(path string, f files.File) error {
	if !filepath.IsLocal(path) || filepath.Clean(path) == "." || strings.HasPrefix(path, "..") {
		return fmt.Errorf("%q is not a relative path without ..: %w", path, errdefs.ErrInvalidArgument)
	}
	c.files[filepath.Clean(path)] = f
	return nil
}

// check refuses a path that is a file and a folder.
func (c *collector) check() error {
	for path := range c.files {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			if _, ok := c.files[dir]; ok {
				return fmt.Errorf("%q is to be a file, and %q to be below it: %w", dir, path, errdefs.ErrInvalidArgument)
			}
		}
	}
	return nil
}

func (c *collector) modeOf(m *int32) os.FileMode {
	if m != nil {
		return os.FileMode(*m) & os.ModePerm
	}
	return c.mode
}

// due brings the time of the next look forward.
func (c *collector) due(at time.Time) { c.next = earliest(c.next, at) }

// earliest takes zero for never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s *Set) downward(c *collector, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		value, err := s.downwardValue(item)
		if err != nil {
			return fmt.Errorf("downward API, item %s: %w", item.Path, err)
		}
		if err := c.name(item.Path, files.File{Data: []byte(value), Mode: c.modeOf(item.Mode)}); err != nil {
			return fmt.Errorf("downward API: %w", err)
		}
	}
	return nil
}

func (s *Set) downwardValue(item corev1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		return podspec.FieldValue(s.spec, item.FieldRef.FieldPath)
	case item.ResourceFieldRef != nil:
		return s.resource(*item.ResourceFieldRef)
	}
	return "", fmt.Errorf("it has neither fieldRef nor resourceFieldRef: %w", errdefs.ErrInvalidArgument)
}

// resource is a value of a container's requests or limits. A limit that is not
// set is what the node has for pods.
func (s *Set) resource(r corev1.ResourceFieldSelector) (string, error) {
	list, name, _ := strings.Cut(r.Resource, ".")
	all := slices.Concat(s.spec.Pod.Spec.InitContainers, s.spec.Pod.Spec.Containers)
	i := slices.IndexFunc(all, func(ct corev1.Container) bool { return ct.Name == r.ContainerName })
	if i < 0 {
		return "", fmt.Errorf("the pod has no container %q: %w", r.ContainerName, errdefs.ErrNotFound)
	}
	ct := all[i].DeepCopy()
	node, known := s.around.Allocatable[corev1.ResourceName(name)]
	if list == "limits" && known && !has(ct.Resources.Limits, corev1.ResourceName(name)) {
		if ct.Resources.Limits == nil {
			ct.Resources.Limits = corev1.ResourceList{}
		}
		ct.Resources.Limits[corev1.ResourceName(name)] = node
	}
	return podspec.ResourceValue(s.spec, ct, &r)
}

// request says what a token is for.
type request struct {
	audience string
	seconds  int64
	path     string
}

// token is one that was made.
type token struct {
	text      string
	refreshAt time.Time
}

// fresh is a token of the pod's service account. One that need not be renewed yet is
// taken again.
func (s *Set) fresh(ctx context.Context, r request) (token, error) {
	if s.around.Tokens == nil {
		return token{}, fmt.Errorf("there are no service accounts without a cluster: %w", errdefs.ErrUnimplemented)
	}
	if t, ok := s.tokens[r]; ok && !clock.Over(t.refreshAt, time.Now()) {
		return t, nil
	}
	text, at, err := s.around.Tokens.Token(ctx, s.spec.Pod, r.audience, r.seconds, r.path)
	if err != nil {
		return token{}, fmt.Errorf("make a token of service account %s for audience %q: %w", s.spec.Pod.Spec.ServiceAccountName, r.audience, err)
	}
	s.tokens[r] = token{text, at}
	return s.tokens[r], nil
}

func (s *Set) token(ctx context.Context, c *collector, p *corev1.ServiceAccountTokenProjection) error {
	r := request{audience: p.Audience, seconds: defaultExpiry, path: p.Path}
	if p.ExpirationSeconds != nil {
		r.seconds = *p.ExpirationSeconds
	}
	t, err := s.fresh(ctx, r)
	if err != nil {
		return fmt.Errorf("serviceAccountToken: %w", err)
	}
	c.due(t.refreshAt)
	f := files.File{Data: []byte(t.text), Mode: c.mode, User: s.onlyUser()}
	if f.User != nil || s.group() != nil {
		f.Mode = ownedToken
	}
	return c.name(p.Path, f)
}

// onlyUser is the user that all containers run as, if they say so.
func (s *Set) onlyUser() *int64 {
	var only *int64
	for i, ct := range slices.Concat(s.spec.Pod.Spec.InitContainers, s.spec.Pod.Spec.Containers) {
		user := (*int64)(nil)
		if sc := s.spec.Pod.Spec.SecurityContext; sc != nil {
			user = sc.RunAsUser
		}
		if sc := ct.SecurityContext; sc != nil && sc.RunAsUser != nil {
			user = sc.RunAsUser
		}
		if user == nil || i > 0 && *user != *only {
			return nil
		}
		only = user
	}
	return only
}

// retryAfter is when to look again at what could not be had.
const retryAfter = 10 * time.Second

// Update brings the files of volumes up to date with the objects that they come
// from, and renews tokens. Changed says whether a container sees anything new;
// next is when to call again even if no object changes, or zero for never. An
// error names the volumes that keep what they had. Mounts with a subPath do not
// change.
func (s *Set) Update(ctx context.Context) (changed bool, next time.Time, err error) {
	var errs []error
	s.waited = 0
	s.around.Runs = true // they were prepared whole before
	for i := range s.list {
		v := &s.list[i]
		did, at, err := s.update(ctx, v, s.volumes[v.Name])
		if err != nil {
			errs = append(errs, fmt.Errorf("update volume %s: %w", v.Name, err))
			at = time.Now().Add(retryAfter)
		}
		changed, next = changed || did, earliest(next, at)
	}
	return changed, next, errors.Join(errs...)
}

func (s *Set) update(ctx context.Context, v *corev1.Volume, m *mounted) (changed bool, next time.Time, err error) {
	if !m.again.IsZero() {
		next, err := s.republish(ctx, v, m)
		return false, next, err
	}
	if m.driven != nil {
		next, err := s.regrow(ctx, v, m)
		return false, next, err
	}
	if !hasContent(v) {
		return false, time.Time{}, nil
	}
	list, next, err := s.collectSoon(ctx, v)
	if err != nil {
		return false, next, err
	}
	changed, err = s.folder(v, m).Publish(list)
	return changed, next, err
}
