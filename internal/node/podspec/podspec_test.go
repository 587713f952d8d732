package podspec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type objects struct{}

var errAway = errors.New("the API server is away")

func (objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	switch name {
	case "m":
		return &corev1.ConfigMap{Data: map[string]string{"A": "from map", "bad key=": "x", "k": "v"}}, nil
	case "away":
		return nil, errAway
	}
	return nil, nil
}

func (objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	switch name {
	case "s":
		return &corev1.Secret{Data: map[string][]byte{"p": []byte("secret")}}, nil
	case "away":
		return nil, errAway
	}
	return nil, nil
}

func ptr[T any](v T) *T { return &v }

func testContext(cts ...corev1.Container) *Context {
	return &Context{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u", Labels: map[string]string{"app": "x"}},
			Spec:       corev1.PodSpec{Containers: cts},
		},
		Node:    Node{Name: "n1", IPs: Fixed([]string{"10.0.0.1"}), MemoryBytes: 8 << 30, CPUs: 4, SeccompRoot: "/s", DNS: Fixed(DNS{Servers: []string{"9.9.9.9"}, Options: []string{"ndots:1", "edns0"}})},
		Objects: objects{}, IPs: []string{"10.1.0.2", "fd00::2"},
	}
}

func TestEnvironment(t *testing.T) {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	ct := corev1.Container{
		Name:      "c",
		Command:   []string{"run", "$(A)", "$$(A)", "$(NONE)", "$", "$(open $$(A"},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("64Mi"), "cpu": resource.MustParse("1500m")}},
		EnvFrom: []corev1.EnvFromSource{
			{Prefix: "X_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: ptr(true)}},
		},
		Env: []corev1.EnvVar{
			{Name: "A", Value: "a"},
			{Name: "B", Value: "$(A)b $(LATER)"},
			{Name: "LATER", Value: "l"},
			{Name: "X_k", Value: "replaced"},
			{Name: "IP", ValueFrom: field("status.podIP")},
			{Name: "IPS", ValueFrom: field("status.podIPs")},
			{Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
			{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "p"}}},
			{Name: "GONE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Key: "no", Optional: ptr(true)}}},
			{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			{Name: "MEM", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
		},
	}
	c := testContext(ct)
	cfg, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0], Number: 2, Image: "id"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range cfg.Envs {
		got = append(got, e.Key+"="+string(e.Value))
	}
	want := []string{
		"X_A=from map", "X_k=replaced", "A=a", "B=ab $(LATER)", "LATER=l", "IP=10.1.0.2", "IPS=10.1.0.2,fd00::2", "LABEL=x", "S=secret", "CPU=2", "MEM=64",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"run", "a", "$(A)", "$(NONE)", "$", "$(open $(A"}, cfg.Command); d != "" {
		t.Error(d)
	}
	if cfg.LogPath != "c/2.log" || cfg.Image.UserSpecifiedImage != "" || cfg.Labels[LabelContainerName] != "c" {
		t.Errorf("log %s, labels %v", cfg.LogPath, cfg.Labels)
	}
	ct.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "no"}}}}
	if _, err := Container(t.Context(), testContext(ct), Attempt{Container: &ct}); err == nil || !strings.Contains(err.Error(), `variable X: the Secret s has no key "no"`) {
		t.Errorf("a missing key: %v", err)
	}
}

// TestResources holds the kubelet's own numbers.
func TestResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l["cpu"] = resource.MustParse(cpu)
		}
		if memory != "" {
			l["memory"] = resource.MustParse(memory)
		}
		return l
	}
	tests := []struct {
		name                   string
		request, limit         corev1.ResourceList
		shares, quota, mem, oo int64
		qos                    corev1.PodQOSClass
	}{
		{"none", nil, nil, 2, 0, 0, 1000, corev1.PodQOSBestEffort},
		{"limits alone are requests", nil, list("500m", "1Gi"), 512, 50_000, 1 << 30, -997, corev1.PodQOSGuaranteed},
		{"burstable", list("250m", "4Gi"), list("1", ""), 256, 100_000, 0, 500, corev1.PodQOSBurstable},
		{"tiny", list("1m", ""), list("1m", ""), 2, 1000, 0, 999, corev1.PodQOSBurstable},
		{"a limit, and a request for nothing", list("0", ""), list("1", ""), 2, 100_000, 0, 999, corev1.PodQOSBurstable},
		{"all of the memory", list("", "8Gi"), nil, 2, 0, 0, 3, corev1.PodQOSBurstable},
		{"absurd", nil, list("1E", ""), 262144, 1_000_000_000 * 100, 0, 999, corev1.PodQOSBurstable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := testContext(corev1.Container{Resources: corev1.ResourceRequirements{Requests: tt.request, Limits: tt.limit}})
			r := Resources(c, &c.Pod.Spec.Containers[0])
			if r.CpuShares != tt.shares || r.CpuQuota != tt.quota || r.MemoryLimitInBytes != tt.mem || r.OomScoreAdj != tt.oo {
				t.Errorf("got %v", r)
			}
			if q := QOS(c.Pod); q != tt.qos {
				t.Errorf("class of service is %s", q)
			}
		})
	}
}

// TestPodLimits has a container that says nothing of a resource get what the pod may have
// of it: as its limit, its share of the processors, and what it is told of itself.
func TestPodLimits(t *testing.T) {
	c := testContext(corev1.Container{Name: "own", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("2Mi")},
	}}, corev1.Container{Name: "none"}, corev1.Container{Name: "zero", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("0")}, Limits: corev1.ResourceList{"memory": resource.MustParse("0")},
	}})
	c.Node.HugePageSizes = []string{"1GB", "2MB"}
	c.Pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{
		"cpu": resource.MustParse("2"), "memory": resource.MustParse("3Gi"), "hugepages-2Mi": resource.MustParse("8Mi"),
	}}
	for i, want := range []string{
		"102 shares, 20000 us, 1 GiB, pages 1GB=0 2MB=2097152, told 200 and 1",
		"2048 shares, 200000 us, 3 GiB, pages 1GB=0 2MB=8388608, told 2000 and 3",
		"2 shares, 200000 us, 3 GiB, pages 1GB=0 2MB=8388608, told 2000 and 3",
	} {
		ct := &c.Pod.Spec.Containers[i]
		r := Resources(c, ct)
		got := fmt.Sprintf("%d shares, %d us, %d GiB, pages", r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes>>30)
		for _, p := range r.HugepageLimits {
			got += fmt.Sprintf(" %s=%d", p.PageSize, p.Limit)
		}
		cpu, err := ResourceValue(c, ct, &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")})
		if err != nil {
			t.Fatal(err)
		}
		memory, err := ResourceValue(c, ct, &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Gi")})
		if err != nil {
			t.Fatal(err)
		}
		if got += ", told " + cpu + " and " + memory; got != want {
			t.Errorf("container %s: %s; want %s", ct.Name, got, want)
		}
	}
	// Of huge pages a container is told what is its own alone, as by a kubelet.
	if got, err := ResourceValue(c, &c.Pod.Spec.Containers[1], &corev1.ResourceFieldSelector{Resource: "limits.hugepages-2Mi"}); got != "0" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestSecurity(t *testing.T) {
	ct := corev1.Container{SecurityContext: &corev1.SecurityContext{
		RunAsUser: ptr[int64](5), AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}},
	}}
	c := testContext(ct)
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: ptr[int64](1), RunAsGroup: ptr[int64](2), SupplementalGroups: []int64{3}, FSGroup: ptr[int64](4),
		SupplementalGroupsPolicy: ptr(corev1.SupplementalGroupsPolicyStrict),
		SeccompProfile:           &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr("p.json")},
	}
	got := security(c, &ct)
	if got.RunAsUser.Value != 5 || got.RunAsGroup.Value != 2 || !slices.Equal(got.SupplementalGroups, []int64{3, 4}) {
		t.Errorf("identity: %v", got)
	}
	if got.SupplementalGroupsPolicy != runtimeapi.SupplementalGroupsPolicy_Strict || !got.NoNewPrivs || !got.ReadonlyRootfs {
		t.Errorf("flags: %v", got)
	}
	if got.Seccomp.ProfileType != runtimeapi.SecurityProfile_Localhost || got.Seccomp.LocalhostRef != "/s/p.json" {
		t.Errorf("seccomp: %v", got.Seccomp)
	}
	if got.NamespaceOptions.Pid != runtimeapi.NamespaceMode_CONTAINER || len(got.MaskedPaths) == 0 {
		t.Errorf("isolation: %v", got)
	}
	c.Groups = []int64{4, 7}
	if got := security(c, &ct).SupplementalGroups; !slices.Equal(got, []int64{3, 4, 7}) {
		t.Errorf("with those of volumes: %v", got)
	}
	c.Pod.Spec.SecurityContext.SupplementalGroups = nil
	ct.SecurityContext.ProcMount = ptr(corev1.UnmaskedProcMount)
	if got := security(c, &ct); len(got.MaskedPaths)+len(got.ReadonlyPaths) != 0 {
		t.Errorf("unmasked /proc is masked: %v", got)
	}
	plain := corev1.Container{}
	for unconfined, want := range map[bool]runtimeapi.SecurityProfile_ProfileType{false: runtimeapi.SecurityProfile_RuntimeDefault, true: runtimeapi.SecurityProfile_Unconfined} {
		c := testContext(plain)
		c.Node.SeccompUnconfined = unconfined
		if got := security(c, &plain).Seccomp.ProfileType; got != want {
			t.Errorf("without a profile, unconfined %t: %v", unconfined, got)
		}
		c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr("p.json")}}
		if got := linuxSandbox(c).SecurityContext.Seccomp; got.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
			t.Errorf("a sandbox, unconfined %t: %v", unconfined, got)
		}
	}
}

func TestSandbox(t *testing.T) {
	c := testContext(corev1.Container{Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: "UDP"}}})
	c.Pod.Name = strings.Repeat("a", 62) + "-b"
	c.Pod.Spec.RuntimeClassName = ptr("sandboxed")
	c.Pod.Spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: []string{"9.9.9.9", "1.1.1.1"}, Searches: []string{"x"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("5")}},
	}
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net/core/somaxconn", Value: "1"}, {Name: "net/ipv4/conf/eth0.1/forwarding", Value: "1"}}, RunAsGroup: ptr[int64](7)}
	got := Sandbox(c)
	if got.Hostname != strings.Repeat("a", 62) {
		t.Errorf("hostname %q", got.Hostname)
	}
	if d := cmp.Diff([]string{"9.9.9.9", "1.1.1.1"}, got.DnsConfig.Servers); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"edns0", "ndots:5"}, got.DnsConfig.Options); d != "" {
		t.Error(d)
	}
	if got.Annotations[AnnotationClass] != "sandboxed" || got.Annotations[AnnotationGrace] != "30" {
		t.Errorf("annotations %v", got.Annotations)
	}
	if p := got.PortMappings[0]; p.HostPort != 8080 || p.Protocol != runtimeapi.Protocol_UDP {
		t.Errorf("port %v", p)
	}
	if got.Linux.Sysctls["net.core.somaxconn"] != "1" || got.Linux.Sysctls["net.ipv4.conf.eth0/1.forwarding"] != "1" || got.Linux.SecurityContext.RunAsGroup != nil {
		t.Errorf("linux %v", got.Linux)
	}
	c.Pod.Spec.DNSPolicy, c.Pod.Spec.HostNetwork = corev1.DNSNone, true
	got = Sandbox(c)
	if d := cmp.Diff([]string{"9.9.9.9", "1.1.1.1"}, got.DnsConfig.Servers); d != "" || got.Hostname != "" {
		t.Error(d, got.Hostname)
	}
	if got.Linux.SecurityContext.NamespaceOptions.Network != runtimeapi.NamespaceMode_NODE {
		t.Error("hostNetwork is lost")
	}
}

// TestGroupAlone has a user beside the group: no runtime takes a group without one.
func TestGroupAlone(t *testing.T) {
	group := &corev1.SecurityContext{RunAsGroup: ptr[int64](7)}
	for name, tt := range map[string]struct {
		pod   *corev1.PodSecurityContext
		own   *corev1.SecurityContext
		image *runtimeapi.Image
		want  string
	}{
		"no group":                 {nil, nil, &runtimeapi.Image{Username: "www"}, "0  0"},
		"of the container":         {nil, group, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 9}}, "9  7"},
		"of the pod":               {&corev1.PodSecurityContext{RunAsGroup: ptr[int64](7)}, nil, &runtimeapi.Image{Username: "www"}, "0 www 7"},
		"the image names no user":  {nil, group, &runtimeapi.Image{}, "0  7"},
		"nobody knows the image":   {nil, group, nil, "0  7"},
		"and a user is asked for":  {&corev1.PodSecurityContext{RunAsUser: ptr[int64](5)}, group, &runtimeapi.Image{Username: "www"}, "5  7"},
		"the image's user is root": {nil, group, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{}}, "0  7"},
	} {
		c := testContext(corev1.Container{Name: "c", SecurityContext: tt.own})
		c.Pod.Spec.SecurityContext = tt.pod
		cfg, err := Container(t.Context(), c, Attempt{Container: &c.Pod.Spec.Containers[0], Info: tt.image})
		if err != nil {
			t.Fatal(err)
		}
		sc := cfg.Linux.SecurityContext
		if got := fmt.Sprintf("%v %v %v", sc.RunAsUser.GetValue(), sc.RunAsUsername, sc.RunAsGroup.GetValue()); got != tt.want || sc.RunAsGroup != nil && sc.RunAsUser == nil && sc.RunAsUsername == "" {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestCheckNonRoot(t *testing.T) {
	yes := &corev1.PodSecurityContext{RunAsNonRoot: ptr(true)}
	tests := []struct {
		name  string
		pod   *corev1.PodSecurityContext
		own   *corev1.SecurityContext
		image *runtimeapi.Image
		bad   bool
	}{
		{"not asked for", nil, nil, nil, false},
		{"root image", yes, nil, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{}}, true},
		{"nothing known", yes, nil, &runtimeapi.Image{}, true},
		{"user image", yes, nil, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 9}}, false},
		{"named user", yes, nil, &runtimeapi.Image{Username: "www"}, true},
		{"own user", yes, &corev1.SecurityContext{RunAsUser: ptr[int64](9)}, nil, false},
		{"own root", yes, &corev1.SecurityContext{RunAsUser: ptr[int64](0)}, nil, true},
		{"own word", yes, &corev1.SecurityContext{RunAsNonRoot: ptr(false)}, nil, false},
	}
	for _, tt := range tests {
		pod := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: tt.pod}}
		if err := CheckNonRoot(pod, &corev1.Container{Name: "c", SecurityContext: tt.own}, tt.image); (err != nil) != tt.bad {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Sidecars are there beside the containers, and beside the init containers that
// come after them.
func TestSidecarsTakeResources(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	ct := func(name, memory string, sidecar bool) corev1.Container {
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse(memory), "cpu": resource.MustParse("1")}}}
		if sidecar {
			c.RestartPolicy = &always
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		}
		return c
	}
	for name, tt := range map[string]struct {
		init []corev1.Container
		want int64 // MiB
	}{
		"none":                      {nil, 10},
		"beside the container":      {[]corev1.Container{ct("s", "5Mi", true)}, 15},
		"an init container alone":   {[]corev1.Container{ct("i", "12Mi", false)}, 12},
		"before an init container":  {[]corev1.Container{ct("s", "5Mi", true), ct("i", "12Mi", false)}, 17},
		"behind an init container":  {[]corev1.Container{ct("i", "12Mi", false), ct("s", "5Mi", true)}, 15},
		"two, and the containers":   {[]corev1.Container{ct("s", "5Mi", true), ct("i", "6Mi", false), ct("s2", "7Mi", true)}, 22},
		"an init container is most": {[]corev1.Container{ct("s", "5Mi", true), ct("i", "60Mi", false), ct("s2", "7Mi", true)}, 65},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: tt.init, Containers: []corev1.Container{ct("c", "10Mi", false)}}}
		cfg := Sandbox(&Context{Pod: pod, Node: Node{DNS: Fixed(DNS{})}})
		if got := cfg.GetLinux().GetResources().GetMemoryLimitInBytes() >> 20; got != tt.want {
			t.Errorf("%s: %d MiB, want %d", name, got, tt.want)
		}
		if ports := len(cfg.GetPortMappings()); (ports > 0) != strings.Contains(fmt.Sprint(tt.init), "8080") {
			t.Errorf("%s: %d ports", name, ports)
		}
	}
}

// TestPreStopAnnotation wants a hook that can be run without its pod.
func TestPreStopAnnotation(t *testing.T) {
	of := func(ct *corev1.Container) map[string]string {
		t.Helper()
		ct.Name = "c"
		cfg, err := Container(t.Context(), &Context{Pod: &corev1.Pod{}, IPs: []string{"10.9.8.7"}}, Attempt{Container: ct})
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Annotations
	}
	get := &corev1.HTTPGetAction{Port: intstr.FromString("web"), Path: "/bye"}
	ct := &corev1.Container{
		Ports:     []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: get}},
	}
	h := PreStopOf(of(ct))
	if h == nil || h.HTTPGet.Host != "10.9.8.7" || h.HTTPGet.Port != intstr.FromInt32(8080) || h.HTTPGet.Path != "/bye" {
		t.Errorf("%+v", h)
	}
	if get.Host != "" || get.Port.StrVal != "web" {
		t.Error("the pod was changed")
	}
	if h := PreStopOf(of(&corev1.Container{Lifecycle: &corev1.Lifecycle{PostStart: h}})); h != nil {
		t.Errorf("%+v", h)
	}
	if h := PreStopOf(map[string]string{AnnotationPreStop: "{"}); h != nil {
		t.Errorf("%+v", h)
	}
}

// TestPortsAnnotation wants ports that are known by name without their pod, in the form that
// a kubelet gives them.
func TestPortsAnnotation(t *testing.T) {
	of := func(ports ...corev1.ContainerPort) map[string]string {
		cfg, err := Container(t.Context(), &Context{Pod: &corev1.Pod{}}, Attempt{Container: &corev1.Container{Name: "c", Ports: ports}})
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Annotations
	}
	web := corev1.ContainerPort{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}
	has := of(web)
	if got, want := has["io.kubernetes.container.ports"], `[{"name":"web","containerPort":8080,"protocol":"TCP"}]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := PortsOf(has); len(got) != 1 || got[0] != web {
		t.Errorf("%+v", got)
	}
	if _, any := of()[AnnotationPorts]; any || PortsOf(map[string]string{AnnotationPorts: "["}) != nil {
		t.Error("a container without ports has some")
	}
}

func TestExpand(t *testing.T) {
	ct := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "$(A)b"}}}
	got, err := Expand(t.Context(), &Context{Pod: &corev1.Pod{}}, ct, []string{"x", "$(B)", "$(C)", "$$(A)"})
	if err != nil || !slices.Equal(got, []string{"x", "ab", "$(C)", "$(A)"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFieldPath(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}}, Containers: []corev1.Container{{Name: "c"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}},
	}}
	for name, want := range map[string]string{"c": "spec.containers{c}", "i": "spec.initContainers{i}", "e": "spec.ephemeralContainers{e}", "x": "", "": ""} {
		if got := FieldPath(pod, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
