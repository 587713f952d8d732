package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
)

// store is objects that change.
type store struct {
	maps    map[string]*corev1.ConfigMap
	secrets map[string]*corev1.Secret
	looks   int
	away    error // why nothing can be read
}

func (s *store) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	s.looks++
	return s.maps[name], s.away
}

func (s *store) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	s.looks++
	return s.secrets[name], s.away
}

func configMap(name string, more ...func(*corev1.ConfigMapVolumeSource)) corev1.Volume {
	v := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	for _, f := range more {
		f(v)
	}
	return source(corev1.VolumeSource{ConfigMap: v})
}

func read(t *testing.T, s *Set, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.volumes["v"].path, name))
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func update(t *testing.T, s *Set, want bool) time.Time {
	t.Helper()
	changed, next, err := s.Update(t.Context())
	if err != nil || changed != want {
		t.Errorf("changed %t, want %t: %v", changed, want, err)
	}
	return next
}

func TestUpdateFollowsAnObject(t *testing.T) {
	st := &store{maps: map[string]*corev1.ConfigMap{"m": {Data: map[string]string{"a": "1"}}}}
	c := podContext(configMap("m"))
	c.Objects = st
	s, err := prepare(c, testDirs(t))
	if err != nil {
		t.Fatal(err)
	}
	if next := update(t, s, false); !next.IsZero() {
		t.Errorf("it wants to look again at %v", next)
	}
	st.maps["m"] = &corev1.ConfigMap{Data: map[string]string{"a": "2", "b": "new"}}
	update(t, s, true)
	if read(t, s, "a") != "2" || read(t, s, "b") != "new" {
		t.Error("not updated")
	}
	// What is gone stays, and the error says so.
	delete(st.maps, "m")
	changed, next, err := s.Update(t.Context())
	if changed || next.IsZero() || err == nil || !strings.Contains(err.Error(), "volume v: ConfigMap m is missing") {
		t.Error(changed, next, err)
	}
	if read(t, s, "a") != "2" {
		t.Error("the old content is gone")
	}
	// So it does for an agent that was started since.
	again, err := prepare(c, s.dirs)
	if err != nil {
		t.Fatal(err)
	}
	if read(t, again, "a") != "2" {
		t.Error("the old content is gone")
	}
	if _, _, err := again.Update(t.Context()); err == nil {
		t.Error("nobody is told")
	}
	st.maps["m"] = &corev1.ConfigMap{Data: map[string]string{"a": "3"}}
	update(t, again, true)
	if read(t, again, "a") != "3" {
		t.Error("not updated")
	}
}

func TestImmutableObjectsAreLookedAtOnce(t *testing.T) {
	st := &store{secrets: map[string]*corev1.Secret{"s": {Immutable: ptr(true), Data: map[string][]byte{"a": []byte("1")}}}}
	c := podContext(source(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
	c.Objects = st
	s, err := prepare(c, testDirs(t))
	if err != nil {
		t.Fatal(err)
	}
	looks := st.looks
	st.secrets["s"] = nil
	update(t, s, false)
	if st.looks != looks {
		t.Error("it was looked at again")
	}
}

func TestOptionalObjectsMayComeLater(t *testing.T) {
	st := &store{maps: map[string]*corev1.ConfigMap{}}
	c := podContext(configMap("m", func(v *corev1.ConfigMapVolumeSource) {
		v.Optional, v.Items = ptr(true), []corev1.KeyToPath{{Key: "a", Path: "x/a"}, {Key: "b", Path: "b"}}
	}))
	c.Objects = st
	s, err := prepare(c, testDirs(t))
	if err != nil {
		t.Fatal(err)
	}
	st.maps["m"] = &corev1.ConfigMap{Data: map[string]string{"a": "1", "other": "2"}}
	update(t, s, true)
	if read(t, s, "x/a") != "1" {
		t.Error("not updated")
	}
	if _, err := os.Lstat(filepath.Join(s.volumes["v"].path, "other")); !os.IsNotExist(err) {
		t.Error("a key is there that is no item")
	}
}

// A pod's labels are its own: the agent puts a newer version of the pod into the
// context.
// TestUnreadableIsNotMissing holds a pod up whose optional objects cannot be read, as they
// may be there; and what is there of them stays.
func TestUnreadableIsNotMissing(t *testing.T) {
	for name, v := range map[string]corev1.Volume{
		"ConfigMap": configMap("m", func(v *corev1.ConfigMapVolumeSource) { v.Optional = ptr(true) }),
		"Secret":    source(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "m", Optional: ptr(true)}}),
	} {
		st := &store{maps: map[string]*corev1.ConfigMap{"m": {Data: map[string]string{"a": "1"}}}, secrets: map[string]*corev1.Secret{"m": {Data: map[string][]byte{"a": []byte("1")}}}}
		c := podContext(v)
		c.Objects = st
		st.away = errors.New("the API server is away")
		dirs := testDirs(t)
		if _, err := prepare(c, dirs); !errors.Is(err, st.away) {
			t.Errorf("%s: %v", name, err)
		}
		st.away = nil
		s, err := prepare(c, dirs)
		if err != nil {
			t.Fatal(err)
		}
		st.away = errors.New("the API server is away")
		if _, _, err := s.Update(t.Context()); !errors.Is(err, st.away) || read(t, s, "a") != "1" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hanging answers nobody.
type hanging struct{ objects }

func (hanging) ConfigMap(ctx context.Context, _, _ string) (*corev1.ConfigMap, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestContentOfAServerThatHangs holds up no pod that has content already for longer than a few
// seconds, however many volumes it has.
func TestContentOfAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := podContext(configMap("m"))
		for i := range 9 {
			v := c.Pod.Spec.Volumes[0]
			v.Name = fmt.Sprintf("v%d", i)
			c.Pod.Spec.Volumes = append(c.Pod.Spec.Volumes, v)
		}
		dirs := testDirs(t)
		if _, err := prepare(c, dirs); err != nil {
			t.Fatal(err)
		}
		c.Objects = hanging{}
		// The first takes all the time that there is together, and each of the others its own.
		most := soon + time.Duration(len(c.Pod.Spec.Volumes)-1)*soonAtAll
		began := time.Now()
		s, err := prepare(c, dirs) // by another agent
		if took := time.Since(began); err != nil || took != most || most > 6*time.Second {
			t.Fatalf("it took %s, want %s: %v", took, most, err)
		}
		began = time.Now()
		_, next, err := s.Update(t.Context())
		if took := time.Since(began); err == nil || took != most || next.IsZero() {
			t.Errorf("it took %s, want %s, next %s: %v", took, most, next, err)
		}
	})
}

func TestUpdateFollowsThePod(t *testing.T) {
	c := podContext(source(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}, Mode: ptr[int32](0o400)},
	}}}))
	s, err := prepare(c, testDirs(t))
	if err != nil {
		t.Fatal(err)
	}
	measured := make(chan error)
	go func() { // beside everything else
		_, err := usage(t.Context(), s)
		measured <- err
	}()
	c.Pod = c.Pod.DeepCopy()
	c.Pod.Labels = map[string]string{"a": "b"}
	update(t, s, true)
	if err := <-measured; err != nil {
		t.Error(err)
	}
	if got := read(t, s, "labels"); got != `a="b"` {
		t.Error(got)
	}
}

func TestResourceFields(t *testing.T) {
	ref := func(r, divisor string) corev1.DownwardAPIVolumeFile {
		s := &corev1.ResourceFieldSelector{ContainerName: "c", Resource: r}
		if divisor != "" {
			s.Divisor = resource.MustParse(divisor)
		}
		return corev1.DownwardAPIVolumeFile{ResourceFieldRef: s}
	}
	pod := func(limits corev1.ResourceList) *podspec.Context {
		c := podContext()
		c.Node = podspec.Node{CPUs: 8, MemoryBytes: 8 << 30}
		c.Pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: limits}}}
		return c
	}
	set := corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("100Mi")}
	node := corev1.ResourceList{"cpu": resource.MustParse("3900m"), "memory": resource.MustParse("1Gi"), "ephemeral-storage": resource.MustParse("10Gi")}
	for _, tt := range []struct {
		limits, node corev1.ResourceList
		item         corev1.DownwardAPIVolumeFile
		want         string
	}{
		{set, node, ref("limits.cpu", ""), "2"},
		{set, node, ref("limits.cpu", "1m"), "1500"},
		{set, node, ref("limits.memory", "1Mi"), "100"},
		{nil, node, ref("limits.cpu", ""), "4"},
		{nil, node, ref("limits.cpu", "1m"), "3900"},
		{nil, node, ref("limits.memory", "1Mi"), "1024"},
		{nil, node, ref("limits.ephemeral-storage", "1Gi"), "10"},
		{nil, node, ref("requests.cpu", "1m"), "0"},
		{nil, nil, ref("limits.cpu", ""), "8"},
		{nil, nil, ref("limits.memory", "1Gi"), "8"},
	} {
		s := &Set{spec: pod(tt.limits), around: Around{Allocatable: tt.node}}
		if got, err := s.downwardValue(tt.item); err != nil || got != tt.want {
			t.Errorf("%+v: %q %v, want %s", tt.item.ResourceFieldRef, got, err, tt.want)
		}
	}
}

// issuer makes tokens.
type issuer struct {
	asked     []request
	text      string
	refreshAt time.Time
	err       error
}

func (i *issuer) Token(_ context.Context, _ *corev1.Pod, audience string, seconds int64, path string) (string, time.Time, error) {
	i.asked = append(i.asked, request{audience, seconds, path})
	return i.text, i.refreshAt, i.err
}

func tokenPod() *podspec.Context {
	return podContext(source(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault", ExpirationSeconds: ptr[int64](600)}},
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "api"}},
	}}}))
}

func TestTokens(t *testing.T) {
	i := &issuer{text: "one", refreshAt: time.Now().Add(time.Hour)}
	c, d := tokenPod(), testDirs(t)
	s, err := Prepare(t.Context(), c, d, Around{Tokens: i})
	if err != nil {
		t.Fatal(err)
	}
	want := []request{{"vault", 600, "token"}, {"", 3600, "api"}}
	if !slices.Equal(i.asked, want) {
		t.Errorf("asked for %+v", i.asked)
	}
	// As long as they are fresh nobody is asked.
	if next := update(t, s, false); !next.Equal(i.refreshAt) || len(i.asked) != 2 {
		t.Errorf("next %v, asked for %d", next, len(i.asked))
	}
	// An old one stays when there is no new one.
	for r := range s.tokens {
		s.tokens[r] = token{"one", time.Now()}
	}
	i.err = errdefs.ErrUnavailable
	changed, next, err := s.Update(t.Context())
	if changed || !errors.Is(err, errdefs.ErrUnavailable) || next.IsZero() || read(t, s, "token") != "one" {
		t.Error(changed, next, err)
	}
	if again, err := Prepare(t.Context(), c, d, Around{Tokens: i}); err != nil || read(t, again, "token") != "one" {
		t.Error(err)
	}
	i.err, i.text, i.refreshAt = nil, "two", time.Now().Add(2*time.Hour)
	if next := update(t, s, true); !next.Equal(i.refreshAt) || read(t, s, "token") != "two" || read(t, s, "api") != "two" {
		t.Error("not renewed")
	}
	if _, err := prepare(tokenPod(), testDirs(t)); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Errorf("without a cluster: %v", err)
	}
}

// A token is for the user of the pod's containers, if they have one in common.
func TestTokenModes(t *testing.T) {
	needRoot(t)
	user := func(id int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &id} }
	for _, tt := range []struct {
		name     string
		group    *int64
		all      *int64
		one, two *corev1.SecurityContext
		uid, gid uint32
		mode     uint32
	}{
		{"nobody in particular", nil, nil, nil, nil, 0, 0, 0o644},
		{"one for all", nil, ptr[int64](1000), nil, nil, 1000, 0, 0o600},
		{"the same twice", nil, nil, user(7), user(7), 7, 0, 0o600},
		{"two", nil, ptr[int64](1000), user(7), nil, 0, 0, 0o644},
		{"a group", ptr[int64](2000), nil, nil, nil, 0, 2000, 0o640},
		{"both", ptr[int64](2000), ptr[int64](1000), nil, nil, 1000, 2000, 0o640},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tokenPod()
			c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: tt.group, RunAsUser: tt.all}
			c.Pod.Spec.InitContainers = []corev1.Container{{SecurityContext: tt.one}}
			c.Pod.Spec.Containers = []corev1.Container{{SecurityContext: tt.two}}
			s, err := Prepare(t.Context(), c, testDirs(t), Around{Tokens: &issuer{text: "x", refreshAt: time.Now().Add(time.Hour)}})
			if err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(s.volumes["v"].path, "token"), &st); err != nil {
				t.Fatal(err)
			}
			if st.Uid != tt.uid || st.Gid != tt.gid || st.Mode&0o7777 != tt.mode {
				t.Errorf("uid %d gid %d mode %o", st.Uid, st.Gid, st.Mode&0o7777)
			}
			update(t, s, false)
		})
	}
}

func TestPathsThatDoNotGoTogether(t *testing.T) {
	items := func(paths ...string) corev1.VolumeProjection {
		p := &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}
		for _, path := range paths {
			p.Items = append(p.Items, corev1.KeyToPath{Key: "a", Path: path})
		}
		return corev1.VolumeProjection{ConfigMap: p}
	}
	for _, tt := range []struct {
		want    string
		sources []corev1.VolumeProjection
	}{
		{"", []corev1.VolumeProjection{items("x", "d/y"), items("d/z")}},
		{"", []corev1.VolumeProjection{items(), items()}}, // a later one replaces an earlier one
		{`"./x" is that of another file`, []corev1.VolumeProjection{items("x"), items("./x")}},
		{`"x" is to be a file, and "x/y" to be below it`, []corev1.VolumeProjection{items("x"), items("x/y")}},
		{`"d" is to be a file`, []corev1.VolumeProjection{items("d/y/z"), items("d")}},
		{`"../x" is not a relative path`, []corev1.VolumeProjection{items("../x")}},
		{`"..data" is not a relative path`, []corev1.VolumeProjection{items("..data")}},
		{`"/x" is not a relative path`, []corev1.VolumeProjection{items("/x")}},
		{`has no key "nope"`, []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{Items: []corev1.KeyToPath{{Key: "nope", Path: "x"}}}}}},
		{"clusterTrustBundle is not supported", []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}}},
		{"podCertificate is not supported", []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{}}}},
		{"names no kind", []corev1.VolumeProjection{{}}},
	} {
		_, err := prepare(podContext(source(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: tt.sources}})), testDirs(t))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}
