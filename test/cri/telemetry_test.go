package cri

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

var toldAt = regexp.MustCompile(`metrics are told.*address=(\S+)`)

func TestDaemonMetrics(t *testing.T) {
	n := node.Start(t, "[metrics]\naddress = \"127.0.0.1:0\"\n")
	s := n.RunPod("crun") // from here on crun is known to be the default, on which pulls are counted
	n.Pull(node.Busybox)
	s.Start(node.Script("sleep 1000"))
	if _, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{
		Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "x", Uid: "x", Namespace: "x"}}, RuntimeHandler: "made-up",
	}); err == nil {
		t.Fatal("there is a handler made-up")
	}
	at := toldAt.FindStringSubmatch(n.Stderr.String())
	if at == nil {
		t.Fatalf("no address in the log:\n%s", n.Stderr)
	}
	resp, err := http.Get("http://" + at[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`fairlead_pod_sandbox_start_seconds_count{runtime_handler="crun"} 1`,
		`fairlead_pod_sandbox_errors_total{runtime_handler="unknown"} 1`,
		`fairlead_pod_sandbox_errors_total{runtime_handler="crun"} 0`,
		`fairlead_operation_errors_total{operation="start container",runtime_handler="crun"} 0`,
		`fairlead_image_pull_errors_total{runtime_handler="crun"} 0`,
		`fairlead_operation_seconds_count{operation="start container",runtime_handler="crun"} 1`,
		`fairlead_image_pull_seconds_count{runtime_handler="crun"} 1`,
		`fairlead_handler_ready{runtime_handler="runc"} 1`,
		`fairlead_operations_in_flight{kind="pod"} 0`,
		`fairlead_pods{state="Running"} 1`,
		`fairlead_containers{state="Running"} 1`,
		`fairlead_monitor_lost_total 0`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

func TestTraceOfAPod(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox) // for nobody
	s := n.RunPod("crun")
	if _, err := n.Images.PullImage(n.Ctx(), pullFor(s.Config)); err != nil {
		t.Fatal(err)
	}
	s.Start(node.Script("sleep 1000"))
	if _, err := n.Images.PullImage(n.Ctx(), pullFor(n.RunPod("runc").Config)); err != nil {
		t.Fatal(err)
	}
	text, err := n.CLI("trace", s.ID, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var past []adminv1.Past
	if err := json.Unmarshal([]byte(text), &past); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	var did []string
	for _, p := range past {
		sum := 0.0
		stages := map[string]bool{}
		for _, s := range p.Stages {
			sum += s.MS
			stages[s.Name] = true
		}
		if p.Error != "" || p.Handler != "crun" || p.MS <= 0 || sum < 0.9*p.MS || sum > p.MS {
			t.Errorf("the stages take %g: %+v", sum, p)
		}
		if p.Verb == "run" && !stages["attach network"] || p.Verb == "create" && !stages["mount root file system"] || p.Verb == "pull" && !stages["record image"] {
			t.Errorf("%v", stages)
		}
		did = append(did, p.Verb+" "+p.Kind)
	}
	if got := strings.Join(did, ", "); got != "run pod, pull image, create container, start container" {
		t.Error(got)
	}
	if table, err := n.CLI("trace", s.ID[:13]); err != nil || !strings.Contains(table, "attach network") {
		t.Errorf("%v\n%s", err, table)
	}
	n.Restart()
	if text, err = n.CLI("trace", s.ID, "-o", "json"); err != nil || strings.TrimSpace(text) != "[]" {
		t.Errorf("after a restart: %v %q", err, text)
	}
}

// pullFor is the pull that a kubelet asks for, which tells the pod.
func pullFor(cfg *runtimeapi.PodSandboxConfig) *runtimeapi.PullImageRequest {
	return &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: node.Busybox}, SandboxConfig: cfg}
}

// A pull is a span below its caller's, with its stages, and is in the trace of its
// pod also where it was over before there was one.
func TestSpanOfAPull(t *testing.T) {
	collector := startCollector(t)
	n := node.Start(t, fmt.Sprintf("[tracing]\nendpoint = %q\n", collector.address))
	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	cfg := n.PodConfig()
	ctx := metadata.AppendToOutgoingContext(n.Ctx(), "traceparent", "00-"+trace+"-"+caller+"-01")
	if _, err := n.Images.PullImage(ctx, pullFor(cfg)); err != nil {
		t.Fatal(err)
	}
	missing := pullFor(cfg)
	missing.Image = &runtimeapi.ImageSpec{Image: node.Registry.Host() + "/test/none:1"}
	if _, err := n.Images.PullImage(ctx, missing); err == nil {
		t.Fatal("there is an image that nobody has pushed")
	}
	r, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	text, err := n.CLI("trace", r.PodSandboxId, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var past []adminv1.Past
	if err := json.Unmarshal([]byte(text), &past); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if len(past) != 3 || past[0].Verb != "pull" || past[0].Name != node.Busybox || past[1].Verb != "pull" || past[1].Error == "" || past[2].Verb != "run" {
		t.Errorf("the trace of the pod: %+v", past)
	}
	n.Restart() // ends the daemon, which sends all spans
	var whole []*tracev1.Span
	stages := map[string]bool{}
	for _, s := range collector.spans() {
		if hex.EncodeToString(s.TraceId) != trace {
			continue
		}
		if s.Name != "pull image" {
			stages[s.Name] = true
			continue
		}
		if whole = append(whole, s); hex.EncodeToString(s.ParentSpanId) != caller {
			t.Errorf("a pull is not below its caller: %v", s)
		}
	}
	if len(whole) != 2 || whole[0].Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR || whole[1].Status.GetCode() != tracev1.Status_STATUS_CODE_ERROR {
		t.Errorf("the spans of a pull that succeeded and of one that did not: %v", whole)
	}
	for _, name := range []string{"resolve name and manifest", "fetch layers", "unpack layers", "record image"} {
		if !stages[name] {
			t.Errorf("no span of the stage %q; there are %v", name, stages)
		}
	}
}
