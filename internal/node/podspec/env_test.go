package podspec

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/errdefs"
)

// cluster knows Services.
type cluster struct {
	objects
	services []*corev1.Service
	unread   error
}

func (c cluster) Services(_ *corev1.Pod, namespace string) ([]*corev1.Service, error) {
	var out []*corev1.Service
	for _, s := range c.services {
		if s.Namespace == namespace {
			out = append(out, s)
		}
	}
	return out, c.unread
}

// TestServicesUnread makes no container without the variables that it is to have.
func TestServicesUnread(t *testing.T) {
	c := testContext(corev1.Container{})
	c.Objects = cluster{unread: errdefs.ErrUnavailable}
	if _, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0]}); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

// envOf are the variables of a pod's only container, in one line each.
func envOf(t *testing.T, c *Context) []string {
	t.Helper()
	cfg, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0]})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range cfg.Envs {
		out = append(out, e.Key+"="+string(e.Value))
	}
	return out
}

func TestServices(t *testing.T) {
	api := service("default", "kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443})
	apiVars := []string{
		"KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443", "KUBERNETES_PORT=tcp://10.96.0.1:443",
		"KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP_PROTO=tcp", "KUBERNETES_PORT_443_TCP_PORT=443", "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
	}
	all := cluster{services: []*corev1.Service{
		service("ns", "my-db", "fd00::1", corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}, corev1.ServicePort{Name: "web-1", Port: 80}),
		service("ns", "headless", corev1.ClusterIPNone, corev1.ServicePort{Port: 1}),
		service("ns", "external", ""),
		service("other", "elsewhere", "10.96.0.9", corev1.ServicePort{Port: 1}),
		service("default", "neighbour", "10.96.0.8", corev1.ServicePort{Port: 1}),
		api,
	}}
	dbVars := []string{
		"MY_DB_SERVICE_HOST=fd00::1", "MY_DB_SERVICE_PORT=53", "MY_DB_SERVICE_PORT_WEB_1=80", "MY_DB_PORT=udp://[fd00::1]:53",
		"MY_DB_PORT_53_UDP=udp://[fd00::1]:53", "MY_DB_PORT_53_UDP_PROTO=udp", "MY_DB_PORT_53_UDP_PORT=53", "MY_DB_PORT_53_UDP_ADDR=fd00::1",
		"MY_DB_PORT_80_TCP=tcp://[fd00::1]:80", "MY_DB_PORT_80_TCP_PROTO=tcp", "MY_DB_PORT_80_TCP_PORT=80", "MY_DB_PORT_80_TCP_ADDR=fd00::1",
	}
	c := testContext(corev1.Container{})
	c.Pod.Namespace, c.Objects = "ns", all
	if d := cmp.Diff(append(append([]string{}, apiVars...), dbVars...), envOf(t, c)); d != "" {
		t.Error(d)
	}
	c.Pod.Spec.EnableServiceLinks = ptr(false)
	if d := cmp.Diff(apiVars, envOf(t, c)); d != "" {
		t.Error(d)
	}
	// A variable of the container wins, and may use what it does not replace.
	c.Pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_PORT", Value: "$(KUBERNETES_SERVICE_HOST)/mine"}}
	got := strings.Join(envOf(t, c), " ")
	if !strings.HasPrefix(got, "KUBERNETES_PORT=10.96.0.1/mine KUBERNETES_SERVICE_HOST=") || strings.Count(got, "KUBERNETES_PORT=") != 1 {
		t.Error(got)
	}
	// A Service of the pod's namespace that has the name of the API server's is before it.
	c.Pod.Spec.EnableServiceLinks, c.Pod.Spec.Containers[0].Env = nil, nil
	c.Objects = cluster{services: []*corev1.Service{api, service("ns", "kubernetes", "10.96.0.77", corev1.ServicePort{Port: 1})}}
	if got := envOf(t, c)[0]; got != "KUBERNETES_SERVICE_HOST=10.96.0.77" {
		t.Error(got)
	}
}

func TestMissingObjects(t *testing.T) {
	for _, from := range []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}},
	} {
		c := testContext(corev1.Container{Name: "c", EnvFrom: []corev1.EnvFromSource{from}})
		if _, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0]}); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), `"none" not found`) {
			t.Error(err)
		}
	}
	none := corev1.LocalObjectReference{Name: "none"}
	for _, from := range []*corev1.EnvVarSource{
		{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: none, Key: "k"}},
		{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: none, Key: "k"}},
	} {
		c := testContext(corev1.Container{Name: "c", Env: []corev1.EnvVar{{Name: "X", ValueFrom: from}}})
		if _, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0]}); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), `"none" not found`) {
			t.Error(err)
		}
	}
}

func TestEnvFile(t *testing.T) {
	c := testContext(corev1.Container{Name: "c"})
	ref := &corev1.FileKeySelector{VolumeName: "v", Path: "p", Key: "K"}
	c.Pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FileKeyRef: ref}}}
	optional := ptr(true)
	for name, tt := range map[string]struct {
		text     string
		err      error // of who reads it
		optional *bool
		want     string // the value, or what the error says
	}{
		"its key":                       {"# c\n\n J='1'\nK = 'a b' # why\n", nil, nil, "A=a b"},
		"over lines":                    {"K='a\n # no comment\n=b'\nJ='x'", nil, nil, "A=a\n # no comment\n=b"},
		"as it is":                      {`K='\n "$(A)"'`, nil, nil, `A=\n "$(A)"`},
		"the last counts":               {"K='1'\nK='2'", nil, nil, "A=2"},
		"no key":                        {"J='1'", nil, nil, `file p of volume v has no key "K"`},
		"no key, optional":              {"J='1'", nil, optional, ""},
		"no file":                       {"", fs.ErrNotExist, nil, "read file p of volume v"},
		"no file, optional":             {"", fs.ErrNotExist, optional, ""},
		"unreadable":                    {"", fs.ErrPermission, optional, "read file p of volume v"},
		"no quotes":                     {"J='1'\nK=a", nil, optional, "line 2: the value of K does not begin with a single quote"},
		"an open quote":                 {"J='1\n2'\nK='a\nb", nil, nil, "line 3: the value of K does not end with a single quote"},
		"more on the line":              {"K='a'b", nil, nil, "line 1: there is something behind the value of K"},
		"no variable":                   {"J\nK='a'", nil, nil, "line 1: it is not of the form"},
		"too large":                     {strings.Repeat("#", MaxEnvFile+1), nil, optional, "larger than 65536 bytes"},
		"a Windows line":                {"K='a'\r\nJ='1'\r\n", nil, nil, "A=a"},
		"the value is on the next line": {"K=\n'a'", nil, nil, "line 1: the value of K does not begin"},
	} {
		ref.Optional = tt.optional
		c.File = func(volume, path string) ([]byte, error) {
			if volume != "v" || path != "p" {
				t.Errorf("%s of %s is read", path, volume)
			}
			return []byte(tt.text), tt.err
		}
		cfg, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0]})
		got := ""
		for _, e := range cfg.GetEnvs() {
			got = e.Key + "=" + string(e.Value)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	c.File = nil
	if _, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0]}); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Error(err)
	}
}

func FuzzParseEnvFile(f *testing.F) {
	for _, text := range []string{"K='a'\n", "K='", "=\n", "#'\nA = 'b' #\n", "a='\n'\n=''"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vars, err := ParseEnvFile(text)
		if (vars == nil) != (err != nil) {
			t.Fatalf("%v and %v", vars, err)
		}
		var b strings.Builder
		for k, v := range vars {
			if strings.Contains(v, "'") || strings.TrimSpace(k) != k || k == "" {
				t.Fatalf("%q=%q", k, v)
			}
			fmt.Fprintf(&b, "%s='%s'\n", k, v)
		}
		if again, err := ParseEnvFile(b.String()); err != nil && vars != nil || err == nil && !cmp.Equal(vars, again) && len(vars) > 0 {
			t.Fatalf("written again it is %v, %v", again, err)
		}
	})
}

func TestResourceValue(t *testing.T) {
	ct := corev1.Container{Name: "c", Resources: resources("250m", "-", "-", "100Mi")}
	ct.Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	ct.Resources.Requests["ephemeral-storage"] = resource.MustParse("1Gi")
	c := testContext(ct)
	c.Node.Allocatable = corev1.ResourceList{"ephemeral-storage": resource.MustParse("5Gi"), "hugepages-1Gi": resource.MustParse("1Gi")}
	for _, tt := range []struct{ container, resource, divisor, want string }{
		{"", "requests.cpu", "0", "1"},
		{"", "requests.cpu", "1m", "250"},
		{"", "limits.cpu", "0", "4"}, // the node's
		{"", "limits.memory", "1Mi", "100"},
		{"", "requests.memory", "1", "104857600"}, // the limit
		{"", "limits.ephemeral-storage", "1Gi", "5"},
		{"", "requests.ephemeral-storage", "1Ki", "1048576"},
		{"", "limits.hugepages-2Mi", "1Mi", "4"},
		{"", "limits.hugepages-1Gi", "1", "0"},
		{"", "requests.ephemeral-storage", "1000", "1073742"},
		{"c", "limits.memory", "1Gi", "1"},
		{"x", "limits.memory", "1", `the pod has no container "x"`},
		{"", "limits.pods", "1", `resource "limits.pods" is not known`},
		{"", "cpu", "1", `resource "cpu" is not known`},
	} {
		of := &ct
		if tt.container != "" {
			of = &corev1.Container{} // as for a file in a volume
		}
		got, err := ResourceValue(c, of, &corev1.ResourceFieldSelector{ContainerName: tt.container, Resource: tt.resource, Divisor: resource.MustParse(tt.divisor)})
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s by %s: %s, want %s", tt.resource, tt.divisor, got, tt.want)
		}
	}
}

func TestFieldValue(t *testing.T) {
	c := testContext(corev1.Container{})
	c.Pod.Annotations = map[string]string{"a.b/c": "1", "z": "two\nlines"}
	c.Node.IPs = Fixed([]string{"10.0.0.1", "fd00::1"})
	for path, want := range map[string]string{
		"metadata.annotations['a.b/c']": "1", "metadata.labels['none']": "", "metadata.annotations": "a.b/c=\"1\"\nz=\"two\\nlines\"",
		"status.hostIPs": "10.0.0.1,fd00::1", "status.hostIP": "10.0.0.1", "spec.serviceAccountName": "default", "spec.nodeName": "n1", "metadata.uid": "u",
	} {
		if got, err := FieldValue(c, path); got != want || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"metadata.labels['x'", "spec.containers", "metadata.name['x']"} {
		if got, err := FieldValue(c, path); err == nil {
			t.Errorf("%s: %q", path, got)
		}
	}
	c.Pod.Spec.ServiceAccountName, c.Pod.Spec.HostNetwork = "robot", true
	if got, _ := FieldValue(c, "spec.serviceAccountName"); got != "robot" {
		t.Error(got)
	}
	if got, _ := FieldValue(c, "status.podIPs"); got != "10.0.0.1,fd00::1" {
		t.Error(got)
	}
}

// TestAddressesOfEachFamily has those of a pod in the order of the node's, whatever the runtime's
// is, and one of each family.
func TestAddressesOfEachFamily(t *testing.T) {
	c := testContext(corev1.Container{})
	c.IPs, c.Pod.Spec.Hostname = []string{"10.0.0.2", "10.0.0.3", "fd00::2"}, "web"
	for _, tt := range []struct{ node, pods string }{
		{"10.0.0.1", "10.0.0.2,fd00::2"},
		{"fd00::1,10.0.0.1,fd00::9", "fd00::2,10.0.0.2"},
	} {
		c.Node.IPs = Fixed(strings.Split(tt.node, ","))
		pods := strings.Split(tt.pods, ",")
		if got, err := FieldValue(c, "status.podIPs"); got != tt.pods || err != nil {
			t.Errorf("node %s: %s, %v", tt.node, got, err)
		}
		if got, err := FieldValue(c, "status.podIP"); got != pods[0] || err != nil {
			t.Errorf("node %s: %s, %v", tt.node, got, err)
		}
		if got, err := FieldValue(c, "status.hostIPs"); got != strings.TrimSuffix(tt.node, ",fd00::9") || err != nil {
			t.Errorf("node %s: %s, %v", tt.node, got, err)
		}
		if got, want := string(Hosts(c, nil)), pods[0]+"\tweb\n"+pods[1]+"\tweb\n"; !strings.HasSuffix(got, want) {
			t.Errorf("node %s: %s", tt.node, got)
		}
	}
}

// TestExpandPlain puts in what the spec itself has, in its order, and leaves the rest as
// it is written.
func TestExpandPlain(t *testing.T) {
	ct := &corev1.Container{Env: []corev1.EnvVar{
		{Name: "A", Value: "1"},
		{Name: "B", Value: "$(A)2"},
		{Name: "C", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "k"}}},
	}}
	got := ExpandPlain(ct, []string{"$(B)", "$(C) $$(A)"})
	if strings.Join(got, "|") != "12|$(C) $(A)" {
		t.Errorf("%q", got)
	}
}

// TestEnvUnreadable starts no container without what is optional and may be there: only
// that it is not counts.
func TestEnvUnreadable(t *testing.T) {
	ref, may := corev1.LocalObjectReference{Name: "away"}, ptr(true)
	for name, ct := range map[string]corev1.Container{
		"a key of a ConfigMap": {Env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: "k", Optional: may}}}}},
		"a key of a Secret":    {Env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Key: "k", Optional: may}}}}},
		"a whole ConfigMap":    {EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: may}}}},
		"a whole Secret":       {EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: may}}}},
	} {
		if _, err := Container(t.Context(), testContext(ct), Attempt{Container: &ct}); !errors.Is(err, errAway) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
