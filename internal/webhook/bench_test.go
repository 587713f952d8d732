package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/test/apiserver"
)

// The size of the cluster that the figures are for.
const (
	manyClasses    = 5000
	manyPolicies   = 500
	manyNamespaces = 200
	manyNodes      = 200
	manyPods       = 5000
)

func large(b *testing.B) *apiserver.Server {
	api := cluster(b)
	for i := range manyClasses {
		c := class(fmt.Sprintf("class-%04d", i))
		c.Labels = map[string]string{"fairlead.run/isolation": []string{"none", "sandbox", "vm"}[i%3]}
		c.Scheduling.NodeSelector = map[string]string{"sandbox/kind": strconv.Itoa(i % 10)}
		api.Put(classes, c)
	}
	for i := range manyPolicies {
		p := policyOf(fmt.Sprintf("policy-%03d", i), func(s *v1alpha1.RuntimeClassPolicySpec) {
			s.Quota = []v1alpha1.ClassQuota{{ClassName: "class-0001", Pods: 1 << 30}}
			s.AllowedClasses = []string{"class-0001", "class-0002"}
		})
		p.Spec.NamespaceSelector = metav1.LabelSelector{MatchLabels: map[string]string{"tenant": strconv.Itoa(i % manyNamespaces)}}
		api.Put(policies, p)
	}
	for i := range manyNamespaces {
		api.Put(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ns-%d", i), Labels: map[string]string{"tenant": strconv.Itoa(i)}}})
	}
	for i := range manyNodes {
		api.Put(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{"sandbox/kind": strconv.Itoa(i % 10)}},
			Status:     corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{{Name: ""}, {Name: "runsc"}}},
		})
	}
	for i := range manyPods {
		p := usual(i, fmt.Sprintf("ns-%d", i%manyNamespaces))
		p.Name, p.UID = fmt.Sprintf("pod-%d", i), uid(i)
		p.Status.Phase = corev1.PodRunning
		api.Put(pods, p)
	}
	return api
}

// usual is a pod as a Deployment of two containers makes it, of 6 KB or so.
func usual(i int, namespace string) *corev1.Pod {
	p := pod(of("class-0001"))
	p.Namespace, p.GenerateName = namespace, "web-7d4b9c6f5d-"
	p.Labels = map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": strconv.Itoa(i), "pod-template-hash": "7d4b9c6f5d"}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 10}
	p.Spec.Containers = nil
	for _, name := range []string{"web", "proxy"} {
		c := corev1.Container{
			Name: name, Image: "registry.example/team/" + name + "@sha256:" + strings.Repeat("0123456789abcdef", 4), LivenessProbe: probe, ReadinessProbe: probe,
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web", ReadOnly: true}, {Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}
		for n := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: strings.Repeat("value", n)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}}}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{}}}}}`),
	}}
	return p
}

// program is a webhook in a process of its own, on a core of its own.
type program struct {
	b       *testing.B
	process *exec.Cmd
	client  *http.Client
	address string
	reviews [2][][]byte // of pods that are created, and of the same once they were changed
}

func run(b *testing.B, api *apiserver.Server) *program {
	config := filepath.Join(b.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\n", api.Config().Host)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	p := &program{b: b, address: free(b)}
	health := free(b)
	p.process = exec.Command(built(b), "webhook", "--kubeconfig", config, "--listen", p.address, "--health", health, "--serve-as", "127.0.0.1", "--drain", "0s", "--log-level", "error")
	p.process.Env = append(os.Environ(), "GOMAXPROCS=1")
	p.process.Stderr = os.Stderr
	if err := apart(b, p.process.Start); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.process.Process.Signal(syscall.SIGTERM)
		if err := p.process.Wait(); err != nil {
			b.Error(err)
		}
	})
	eventually(b, "ready", func() bool {
		resp, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	p.scrape("http://" + health + "/metrics")
	p.client = believing(b, injected(b, api))
	for i := range manyNamespaces {
		request := creating(b, usual(i, fmt.Sprintf("ns-%d", i)))
		request.Namespace = fmt.Sprintf("ns-%d", i)
		p.reviews[0] = append(p.reviews[0], reviewOf(b, request))
		request.Object = raw(b, p.mutated(request))
		p.reviews[1] = append(p.reviews[1], reviewOf(b, request))
	}
	return p
}

// built is the program as make builds it, since a test binary is larger: what of a file
// is mapped counts as memory. FAIRLEAD_BENCH_PROGRAM names another one.
func built(b *testing.B) string {
	if other := os.Getenv("FAIRLEAD_BENCH_PROGRAM"); other != "" {
		return other
	}
	name := filepath.Join(b.TempDir(), "fairlead")
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace nri_no_wasm", "-ldflags", "-s -w", "-o", name, "fairlead.run/cmd/fairlead")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the program: %v\n%s", err, text)
	}
	return name
}

// mutated is a pod as the validating phase sees it: as the webhook wants it, and
// with its UID.
func (p *program) mutated(request *admissionv1.AdmissionRequest) *corev1.Pod {
	resp, err := p.client.Post("https://"+p.address+paths[0], jsonType, bytes.NewReader(reviewOf(p.b, request)))
	if err != nil {
		p.b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer admissionv1.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || !answer.Response.Allowed {
		p.b.Fatalf("%v %+v", err, answer.Response)
	}
	out := patched(p.b, request.Object.Raw, answer.Response.Patch)
	out.UID = types.UID("new-" + request.Namespace)
	return out
}

// paths are asked in turn, as an API server does for each pod.
var paths = [2]string{"/mutate-pods", "/validate-pods"}

// scrape asks for metrics every second until the benchmark ends, so that what the
// cluster has is counted as often as it can be.
func (p *program) scrape(url string) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Second); ; {
			if resp, err := http.Get(url); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	p.b.Cleanup(func() {
		close(end)
		<-ended
	})
}

func free(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// send makes one request, and returns how long it took.
func (p *program) send(i int) time.Duration {
	phase, of := i%2, i/2%manyNamespaces
	began := time.Now()
	resp, err := p.client.Post("https://"+p.address+paths[phase], jsonType, bytes.NewReader(p.reviews[phase][of]))
	if err != nil {
		p.b.Error(err)
		return 0
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"allowed":true`)) {
		p.b.Errorf("%d %s %v", resp.StatusCode, text, err)
	}
	return time.Since(began)
}

// cpu is what the process has used.
func (p *program) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.process.Process.Pid))
	if err != nil {
		p.b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory is a line of the process's status, in MB.
func (p *program) memory(line string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Process.Pid))
	if err != nil {
		p.b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	kB, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		p.b.Fatal(err)
	}
	return kB / 1024
}

// report tells what the requests took, and what the process did.
func (p *program) report(times []time.Duration, all time.Duration, before machine) {
	used := p.cpu()
	machineNow(p.b, used).report(p.b, before, all)
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[min(len(times)-1, int(share*float64(len(times))))]) / float64(time.Millisecond)
	}
	p.b.ReportMetric(float64(len(times))/all.Seconds(), "req/s")
	p.b.ReportMetric(at(0.5), "p50-ms")
	p.b.ReportMetric(at(0.99), "p99-ms")
	p.b.ReportMetric(float64((used-before.server).Microseconds())/float64(len(times)), "cpu-µs/req")
	p.b.ReportMetric(p.memory("VmRSS"), "RSS-MB")
	p.b.ReportMetric(p.memory("RssFile"), "RSS-of-files-MB")
	p.b.ReportMetric(p.memory("VmHWM"), "RSS-peak-MB")
}

// BenchmarkWebhook asks a webhook on one core about pods, in both phases, over TLS and one
// connection of HTTP/2: at the rate of 1000 a second, whether the ones before were answered
// or not, and as fast as 16 can. A time is the client's, from the call to the whole answer.
func BenchmarkWebhook(b *testing.B) {
	api := large(b)
	// What is measured is not the collector of the client, which has the whole
	// API server in its memory.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	p := run(b, api)
	for i := range 2 * manyNamespaces {
		p.send(i)
	}
	b.Run("paced", func(b *testing.B) {
		p.b = b
		times := make([]time.Duration, b.N)
		before, began := machineNow(b, p.cpu()), time.Now()
		var all sync.WaitGroup
		for i := range b.N {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Millisecond)))
			all.Go(func() { times[i] = p.send(i) })
		}
		all.Wait()
		p.report(times, time.Since(began), before)
	})
	b.Run("flat-out", func(b *testing.B) {
		p.b = b
		times := make([]time.Duration, b.N)
		before, began := machineNow(b, p.cpu()), time.Now()
		var next atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for i := int(next.Add(1)) - 1; i < b.N; i = int(next.Add(1)) - 1 {
					times[i] = p.send(i)
				}
			})
		}
		all.Wait()
		p.report(times, time.Since(began), before)
	})
}
