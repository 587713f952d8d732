package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/e2e/cluster"
)

const (
	stage    = "outage" // the namespace
	stayers  = 50
	churners = 3
)

// absence is something that stays away: what is killed, what else is killed and started
// anew meanwhile, and how it comes back.
type absence struct {
	kill, meanwhile, start func() error
	// restarts says in which half of the story the node restarts what ends at once, and
	// tells whether that is told afterwards.
	restarts, told [2]bool
}

// absences are those that -gone names.
func absences() map[string]absence {
	// A kubelet that finds no runtime ends, and nobody starts it again here.
	serves := func() error {
		return node.Daemon.Await(context.Background(), patience, node.RuntimeServes)
	}
	all := func(steps ...func() error) func() error { return func() error { return again(steps...) } }
	daemon := all(node.Daemon.Start, serves)
	api := all(node.APIServer.Kill, node.APIServer.Start)
	never, always := [2]bool{}, [2]bool{true, true}
	return map[string]absence{
		"apiserver": {node.APIServer.Kill, all(node.Daemon.Kill, daemon), node.APIServer.Start, always, always},
		// An agent knows no pods but static ones before it has heard of them. What the one
		// before it had to tell has ended with it.
		"apiserver-agent": {node.APIServer.Kill, all(node.Kubelet.Kill, node.Kubelet.Start), node.APIServer.Start, [2]bool{true, false}, [2]bool{false, true}},
		"agent":           {node.Kubelet.Kill, all(node.Daemon.Kill, daemon), node.Kubelet.Start, never, always},
		"runtime":         {node.Daemon.Kill, api, daemon, never, always},
		"node":            {all(node.Kubelet.Kill, node.Daemon.Kill), api, all(daemon, node.Kubelet.Start), never, always},
	}
}

// fate is what is to become of a pod: how it is in the end, and how often its last
// container was restarted, or any number of times if that is negative.
type fate struct {
	phase    corev1.PodPhase
	ready    bool
	restarts int32
	code     int32 // with which that container has ended, the last time that it did
}

// scene is the pods of TestOutage. Each container writes down its beginnings and ends in a
// diary, waits for a code, and ends with that.
type scene struct {
	*testing.T
	api      *api
	outage   absence
	alone    bool // the node is there, and the API server is not
	away     bool // what is to stay away
	folder   string
	image    string
	runtime  runtimeapi.RuntimeServiceClient
	wants    map[string]fate
	switches map[string]*os.File // by pod and container
}

func newScene(t *testing.T) *scene {
	t.Helper()
	outage, ok := absences()[*gone]
	switch {
	case !ok:
		t.Fatalf("-gone %s: there are apiserver, apiserver-agent, agent, runtime and node", *gone)
	case *guest != "":
		t.Skip("it asks the runtime at a socket of this machine")
	}
	conn, err := grpc.NewClient(node.RuntimeEndpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := &scene{
		T: t, api: newAPI(t), outage: outage, alone: strings.HasPrefix(*gone, "apiserver"), folder: t.TempDir(), image: imageOf(t, "agnhost"),
		runtime: runtimeapi.NewRuntimeServiceClient(conn), wants: map[string]fate{}, switches: map[string]*os.File{},
	}
	s.api.namespaceFor(t, stage, nil)
	t.Cleanup(func() {
		if s.away { // the test has failed, and others need it
			_ = s.outage.start()
			eventually(t, func() error { return node.NodeReady(context.Background()) })
		}
	})
	return s
}

// The scripts of containers.
const (
	waits = `read code <>$d.end; echo ended $code >>$d.diary; exit $code`
	// crashes until somebody is to look.
	crashes  = `[ ! -e /switch/calm ] || read code <>$d.end; sleep 1; echo ended 3 >>$d.diary; exit 3`
	stubborn = `trap "" TERM; ` + waits
)

// container is one that runs a script.
func (s *scene) container(pod, name, script string) object {
	s.Helper()
	diary := pod + "." + name
	pipe := filepath.Join(s.folder, diary+".end")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		s.Fatal(err)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0) // who holds it keeps what is written
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = f.Close() })
	s.switches[diary] = f
	return object{
		"name": name, "image": s.image, "volumeMounts": []object{{"name": "switch", "mountPath": "/switch"}},
		"command": []string{"sh", "-c", "d=/switch/" + diary + `; echo started >>$d.diary; trap 'echo stopped >>$d.diary; exit' TERM; ` + script},
	}
}

// pod has these containers.
func (s *scene) pod(name string, policy corev1.RestartPolicy, containers ...object) object {
	spec := object{
		"nodeName": cluster.NodeName, "terminationGracePeriodSeconds": 5, "restartPolicy": policy, "containers": containers,
		"volumes": []object{{"name": "switch", "hostPath": object{"path": s.folder}}},
	}
	if !s.alone { // a controller would end the pods of a node that is away for long
		spec["tolerations"] = []object{{"operator": "Exists"}}
	}
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "namespace": stage}, "spec": spec}
}

// put has a pod of which some fate is expected.
func (s *scene) put(pod object, want fate) {
	s.Helper()
	s.api.must(s.T, http.MethodPost, podsOf(stage), pod, nil)
	s.wants[pod["metadata"].(object)["name"].(string)] = want
}

// putPlain is put for a pod that stays as it is.
func (s *scene) putPlain(name string) {
	s.Helper()
	s.put(s.pod(name, corev1.RestartPolicyAlways, s.container(name, "main", waits)), fate{phase: corev1.PodRunning, ready: true})
}

// begin has all pods that are there before, until they run.
func (s *scene) begin() {
	s.Helper()
	for i := range stayers {
		s.putPlain(fmt.Sprintf("stays-%d", i))
	}
	once, on := corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	for i := range 2 {
		of := func(kind string) string { return fmt.Sprintf("%s-%d", kind, i) }
		main := func(kind string) object { return s.container(of(kind), "main", waits) }
		s.wants[of("stays")] = fate{corev1.PodRunning, true, 1, 3}
		s.put(s.pod(of("done"), once, main("done")), fate{phase: corev1.PodSucceeded})
		s.put(s.pod(of("failed"), once, main("failed")), fate{phase: corev1.PodFailed, code: 5})
		s.put(s.pod(of("tries"), on, main("tries")), fate{phase: corev1.PodSucceeded, restarts: 1})
		s.put(s.pod(of("two"), on, main("two"), s.container(of("two"), "side", waits)), fate{corev1.PodRunning, true, 1, 6})
		unready := main("unready")
		unready["readinessProbe"] = object{"exec": object{"command": []string{"test", "-e", "/switch/" + of("unready")}}, "periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 1}
		s.write(of("unready"))
		s.put(s.pod(of("unready"), on, unready), fate{phase: corev1.PodRunning})
	}
	s.putPlain("goes-0")
	s.put(s.pod("goes-1", on, s.container("goes-1", "main", stubborn)), fate{})
	s.putPlain("late")
	kubectl(s.T, "wait", "-n", stage, "--for=condition=Ready", "--timeout", patience.String(), "pod", "--all")
	for i := range churners {
		name := fmt.Sprintf("churns-%d", i)
		s.put(s.pod(name, corev1.RestartPolicyAlways, s.container(name, "main", crashes)), fate{corev1.PodRunning, true, -1, 3})
		s.awaitDiary(name+".main", "ended 3")
	}
}

func (s *scene) write(name string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, name), nil, 0o600); err != nil {
		s.Fatal(err)
	}
}

// comeAndGo has pods begin and end just before something goes.
func (s *scene) comeAndGo() {
	s.Helper()
	s.putPlain("new-0")
	s.putPlain("new-1")
	s.remove("goes-0", "goes-1")
}

func (s *scene) remove(names ...string) {
	s.Helper()
	for _, name := range names {
		s.api.must(s.T, http.MethodDelete, podsOf(stage)+"/"+name, nil, nil)
		delete(s.wants, name)
	}
}

// half ends the containers of a half of those that are to end, and changes others.
func (s *scene) half(i int) {
	s.Helper()
	of := func(kind string) string { return fmt.Sprintf("%s-%d.", kind, i) }
	for diary, code := range map[string]int{of("stays") + "main": 3, of("done") + "main": 0, of("failed") + "main": 5, of("tries") + "main": 4, of("two") + "side": 6} {
		s.end(diary, code)
	}
	if err := os.Remove(filepath.Join(s.folder, strings.TrimSuffix(of("unready"), "."))); err != nil {
		s.Fatal(err)
	}
	if s.alone {
		s.manifests(i)
	} else {
		s.change(i)
	}
	if s.outage.restarts[i] {
		s.awaitRestarts(i)
	}
}

// awaitRestarts waits until what has ended in a half begins again.
func (s *scene) awaitRestarts(i int) {
	s.Helper()
	for _, diary := range []string{"stays-%d.main", "tries-%d.main", "two-%d.side"} {
		s.awaitDiary(fmt.Sprintf(diary, i), "ended .*\nstarted")
	}
}

// end has a container end with a code.
func (s *scene) end(diary string, code int) {
	s.Helper()
	if _, err := fmt.Fprintln(s.switches[diary], code); err != nil {
		s.Fatal(err)
	}
	s.awaitDiary(diary, fmt.Sprintf("ended %d", code))
}

// goOn has pods begin and end just after all is back, and what was tried again succeed.
func (s *scene) goOn() {
	s.Helper()
	s.awaitAPI()
	s.putPlain("next")
	s.remove("late")
	s.write("calm")
	for i := range 2 {
		s.awaitRestarts(i)
		s.end(fmt.Sprintf("tries-%d.main", i), 0)
	}
}

func (s *scene) awaitAPI() {
	s.Helper()
	eventually(s.T, func() error {
		got, err := s.api.do(s.Context(), http.MethodGet, "/readyz", nil)
		if err == nil && !got.ok() {
			err = errors.New(got.String())
		}
		return err
	})
}

// statics are the manifests of pods that come and go while the API server cannot say so.
var statics = [...]string{filepath.Join(cluster.StaticPods, "outage-0.yaml"), filepath.Join(cluster.StaticPods, "outage-1.yaml")}

// manifests has one static pod begin in the first half, and in the second one it ends and
// another one begins.
func (s *scene) manifests(i int) {
	s.Helper()
	name := fmt.Sprintf("static-%d", i)
	text, err := json.Marshal(s.pod(name, corev1.RestartPolicyAlways, s.container(name, "main", waits)))
	if err == nil {
		err = node.Machine().Write(statics[i], string(text))
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := node.Machine().Remove(statics[i]); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.Error(err)
		}
	})
	s.awaitDiary(name+".main", "started")
	if i == 0 {
		return
	}
	if err := node.Machine().Remove(statics[0]); err != nil {
		s.Fatal(err)
	}
	s.awaitDiary("static-0.main", "stopped")
	s.wants[name+"-"+cluster.NodeName] = fate{phase: corev1.PodRunning, ready: true}
}

// change has pods come and go while the API server is there, and the node is not.
func (s *scene) change(i int) {
	s.Helper()
	s.awaitAPI()
	s.putPlain(fmt.Sprintf("meanwhile-%d", i))
	s.remove(fmt.Sprintf("stays-%d", stayers-1-i))
}
