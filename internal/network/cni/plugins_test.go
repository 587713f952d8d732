package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
	"fairlead.run/internal/pod"
)

// answer is what a plugin that works prints for ADD.
const answer = `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.9.0.7/24","interface":0}],"dns":{"nameservers":["10.9.0.1"],"search":["x"]}}`

// spy is a plugin that notes what it gets in $log and works.
func (l *lab) spy(name string) (log string) {
	log = filepath.Join(l.bin, name+".log")
	l.plugin(name, fmt.Sprintf(`{ echo "$CNI_COMMAND id=$CNI_CONTAINERID ns=$CNI_NETNS if=$CNI_IFNAME args=$CNI_ARGS"; cat; echo; } >> %s
[ "$CNI_COMMAND" = ADD ] && echo '%s'
exit 0`, log, answer))
	return log
}

func lines(t *testing.T, log, prefix string) []string {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var out []string
	for l := range strings.Lines(string(b)) {
		if strings.HasPrefix(l, prefix) {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return out
}

func TestPluginsGetWhatTheyDeclare(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	log := l.spy("spy")
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"spy","capabilities":
		{"portMappings":true,"bandwidth":true,"dns":true,"cgroupPath":true,"aliases":true,"io.kubernetes.cri.pod-annotations":false}}]}`)
	d := l.driver(newLedger(t))
	p := networktest.NewPod(t, "web", pod.PortMapping{Protocol: "tcp", HostPort: 81, ContainerPort: 80, HostIP: "192.0.2.9"},
		pod.PortMapping{Protocol: "tcp", ContainerPort: 90})
	p.Req.DNS = &pod.DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"svc"}, Options: []string{"ndots:5"}}
	p.Req.CgroupPath = "/kubepods/x"
	p.Req.Annotations = map[string]string{network.IngressBandwidth: "10M", "secret": "s"}
	res, err := d.Attach(context.Background(), p.Req)
	if err != nil {
		t.Fatal(err)
	}
	if res.IPs[0].String() != "10.9.0.7" || res.DNS == nil || res.DNS.Servers[0] != "10.9.0.1" {
		t.Errorf("result %+v", res)
	}
	got := lines(t, log, "ADD")
	want := fmt.Sprintf("ADD id=%s ns=%s if=eth0 args=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=uid-web", p.Req.ID, p.Path, p.Req.ID)
	if len(got) != 1 || got[0] != want {
		t.Errorf("ADD was run as %q, want %q", got, want)
	}
	var conf struct {
		RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
	}
	if err := json.Unmarshal([]byte(lines(t, log, "{")[0]), &conf); err != nil {
		t.Fatal(err)
	}
	for capability, want := range map[string]string{
		"portMappings": `[{"hostPort":81,"containerPort":80,"protocol":"tcp","hostIP":"192.0.2.9"}]`,
		"bandwidth":    `{"ingressRate":10000000,"ingressBurst":1000000}`,
		"dns":          `{"servers":["10.0.0.10"],"searches":["svc"],"options":["ndots:5"]}`,
		"cgroupPath":   `"/kubepods/x"`,
		"aliases":      `["web"]`,
	} {
		if got := string(conf.RuntimeConfig[capability]); got != want {
			t.Errorf("capability %s is %s, want %s", capability, got, want)
		}
	}
	if len(conf.RuntimeConfig) != 5 {
		t.Errorf("plugin got undeclared capabilities: %v", conf.RuntimeConfig)
	}
}

// TestNamesAreNoArguments: what would be other arguments to a plugin is refused
// before one runs, and nothing is kept of the pod.
func TestNamesAreNoArguments(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	log := l.spy("spy")
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"spy"}]}`)
	ledger := newLedger(t)
	d := l.driver(ledger)
	for _, set := range []func(m *pod.Metadata){
		func(m *pod.Metadata) { m.Name = "web;IP=10.0.0.1" },
		func(m *pod.Metadata) { m.Namespace = "a=b" },
		func(m *pod.Metadata) { m.UID = ";" },
	} {
		p := networktest.NewPod(t, "web")
		set(&p.Req.Metadata)
		_, err := d.Attach(context.Background(), p.Req)
		if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "K8S_POD_") {
			t.Errorf("%+v: %v", p.Req.Metadata, err)
		}
		if _, ok := ledger.Get(p.Req.ID); ok {
			t.Errorf("%+v: it is in the ledger", p.Req.Metadata)
		}
	}
	if got := lines(t, log, ""); len(got) > 0 {
		t.Errorf("the plugin was run: %q", got)
	}
	p := networktest.NewPod(t, "odd \"name\" ü")
	if _, err := d.Attach(context.Background(), p.Req); err != nil {
		t.Errorf("a name that is only odd: %v", err)
	}
}

// TestDelUsesTheConfigurationOfAdd changes, breaks and removes the file, and
// renames the network, while a pod runs.
func TestDelUsesTheConfigurationOfAdd(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	first, second := l.spy("first"), l.spy("second")
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n1","plugins":[{"type":"first","mark":"one"}]}`)
	ledgerDir := t.TempDir()
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: ledgerDir})
	if err != nil {
		t.Fatal(err)
	}
	d := l.driver(ledger)
	p := networktest.NewPod(t, "p")
	if _, err := d.Attach(context.Background(), p.Req); err != nil {
		t.Fatal(err)
	}
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n2","plugins":[{"type":"second"}]}`)
	if ledger, err = network.OpenLedger(network.LedgerConfig{Dir: ledgerDir}); err != nil {
		t.Fatal(err)
	}
	d = l.driver(ledger) // a new process
	if err := d.Detach(context.Background(), p.Req.ID); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, first, "DEL"); len(got) != 1 {
		t.Errorf("DEL of the first plugin was run %d times", len(got))
	}
	if got := lines(t, second, "DEL"); len(got) != 0 {
		t.Errorf("DEL was run with the new configuration: %q", got)
	}
	confs := lines(t, first, "{")
	if last := confs[len(confs)-1]; !strings.Contains(last, `"mark":"one"`) || !strings.Contains(last, "prevResult") {
		t.Errorf("DEL got %s, want the configuration of ADD and its result", last)
	}
}

func TestFailedAddIsTakenBack(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	log := l.spy("spy")
	l.plugin("broken", `echo noise >&2; echo '{"cniVersion":"1.1.0","code":11,"msg":"no lease","details":"dhcp"}'; [ "$CNI_COMMAND" = DEL ] || exit 1`)
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"spy"},{"type":"broken"}]}`)
	ledger := newLedger(t)
	p := networktest.NewPod(t, "p")
	_, err := l.driver(ledger).Attach(context.Background(), p.Req)
	if !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("error %v, want unavailable: code 11 says try again later", err)
	}
	for _, want := range []string{"1.conflist", `network "n"`, "plugin broken ADD", "no lease", "dhcp", "noise"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if got := lines(t, log, "DEL"); len(got) != 1 {
		t.Errorf("DEL was run %d times, want once", len(got))
	}
	if _, ok := ledger.Get(p.Req.ID); ok {
		t.Error("the ledger still has the pod")
	}
}

// TestFailedDelIsRepeated wants an attachment to stay recorded until a DEL has
// worked.
func TestFailedDelIsRepeated(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	l.plugin("p", fmt.Sprintf(`[ "$CNI_COMMAND" = ADD ] && echo '%s'; [ "$CNI_COMMAND" != DEL ] || [ -e %s/ok ]`, answer, l.bin))
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"p"}]}`)
	dir := t.TempDir()
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	d, p := l.driver(ledger), networktest.NewPod(t, "p")
	if _, err := d.Attach(context.Background(), p.Req); err != nil {
		t.Fatal(err)
	}
	if err := d.Detach(context.Background(), p.Req.ID); err == nil {
		t.Fatal("Detach hid the plugin's failure")
	}
	if _, ok := ledger.Get(p.Req.ID); !ok {
		t.Fatal("the ledger forgot an attachment whose DEL failed")
	}
	if ledger, err = network.OpenLedger(network.LedgerConfig{Dir: dir, BootID: "another boot"}); err != nil {
		t.Fatal(err)
	}
	d = l.driver(ledger)
	p.Drop() // after the reboot the namespace is gone
	none := func(pod.ID) bool { return false }
	if err := d.Reconcile(context.Background(), none); err == nil {
		t.Fatal("Reconcile hid the plugin's failure")
	}
	if err := os.WriteFile(filepath.Join(l.bin, "ok"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Reconcile(context.Background(), none); err != nil {
		t.Fatal(err)
	}
	if _, ok := ledger.Get(p.Req.ID); ok {
		t.Error("the ledger still has the pod after its DEL")
	}
}

func TestHangingPlugin(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	l.cfg.AddTimeout = 300 * time.Millisecond
	// The grandchild keeps the plugin's output open.
	l.plugin("slow", `[ "$CNI_COMMAND" = ADD ] || exit 0; echo "asking the DHCP server" >&2; sleep 60 & sleep 60`)
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"slow"}]}`)
	ledger := newLedger(t)
	p := networktest.NewPod(t, "p")
	start := time.Now()
	_, err := l.driver(ledger).Attach(context.Background(), p.Req)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Attach took %s", took)
	}
	if !errors.Is(err, errdefs.ErrDeadline) || !strings.Contains(err.Error(), "plugin slow ADD") || !strings.Contains(err.Error(), "asking the DHCP server") {
		t.Errorf("error %v, want a deadline that names the plugin and what it printed", err)
	}
	if _, ok := ledger.Get(p.Req.ID); ok {
		t.Error("the ledger still has the pod")
	}
}

func TestNoAddressIsAnError(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	l.plugin("empty", `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0"}'; exit 0`)
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"empty"}]}`)
	_, err := l.driver(newLedger(t)).Attach(context.Background(), networktest.NewPod(t, "p").Req)
	if err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("error %v", err)
	}
}

// TestGC runs Reconcile after a crash that lost one ledger entry to a power cut.
func TestGC(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	log := l.spy("spy")
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"spy"}]}`)
	dir := t.TempDir()
	open := func() *network.Ledger {
		ledger, err := network.OpenLedger(network.LedgerConfig{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return ledger
	}
	d := l.driver(open())
	kept, lost, torn := networktest.NewPod(t, "kept"), networktest.NewPod(t, "lost"), networktest.NewPod(t, "torn")
	for _, p := range []*networktest.Pod{kept, lost, torn} {
		if _, err := d.Attach(context.Background(), p.Req); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, string(lost.Req.ID)+".json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, string(torn.Req.ID)+".json"), 0); err != nil {
		t.Fatal(err)
	}
	ledger := open()
	s := network.NewSwitch(ledger, networktest.NewFake(ledger), l.driver(ledger))
	if err := s.Reconcile(context.Background(), func(id pod.ID) bool { return id == kept.Req.ID }); err != nil {
		t.Fatal(err)
	}
	deleted := strings.Join(lines(t, log, "DEL"), "\n")
	for name, p := range map[string]*networktest.Pod{"lost": lost, "torn": torn} {
		if !strings.Contains(deleted, string(p.Req.ID)) {
			t.Errorf("the %s pod was not released: %s", name, deleted)
		}
	}
	if strings.Contains(deleted, string(kept.Req.ID)) {
		t.Error("the live pod was released")
	}
	if got := len(ledger.List(Name)); got != 1 {
		t.Errorf("the ledger has %d entries, want 1", got)
	}
	if got := lines(t, log, "GC"); len(got) != 1 {
		t.Fatalf("GC was run %d times", len(got))
	}
	confs := lines(t, log, "{")
	want := fmt.Sprintf(`"cni.dev/valid-attachments":[{"containerID":"%s","ifname":"eth0"}]`, kept.Req.ID)
	if last := confs[len(confs)-1]; !strings.Contains(last, want) {
		t.Errorf("GC got %s, want %s", last, want)
	}
}

// TestGCLeavesOthersAlone wants no GC on a network that never had a pod of
// this node's records: another runtime may use it.
func TestGCLeavesOthersAlone(t *testing.T) {
	l := newLab(t)
	log := l.spy("spy")
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"spy"}]}`)
	if err := l.driver(newLedger(t)).Reconcile(context.Background(), func(pod.ID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, log, ""); len(got) != 0 {
		t.Errorf("plugins were run: %q", got)
	}
}

func TestBandwidthPlugin(t *testing.T) {
	needPlugins(t, "bridge", "host-local", "bandwidth")
	l := newLab(t)
	l.write("1.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"flbw","plugins":[
		{"type":"bridge","bridge":"flbw0","isGateway":true,"ipam":{"type":"host-local","dataDir":%q,"subnet":"10.198.0.0/24"}},
		{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`, t.TempDir()))
	d, p := l.driver(newLedger(t)), networktest.NewPod(t, "p")
	p.Req.Annotations = map[string]string{network.IngressBandwidth: "1M", network.EgressBandwidth: "2M"}
	if _, err := d.Attach(context.Background(), p.Req); err != nil {
		t.Fatal(err)
	}
	if err := d.Detach(context.Background(), p.Req.ID); err != nil {
		t.Fatal(err)
	}
}

// TestPluginsAreReapedLate: a plugin that has ended well is still a zombie when
// its answer is there, and later nothing is left of it. One that has failed is
// waited for at once.
func TestPluginsAreReapedLate(t *testing.T) {
	l := newLab(t)
	r := &runner{}
	for script, late := range map[string]bool{"echo $$": true, "echo $$; exit 3": false, "echo $$; kill -9 $$": false} {
		l.plugin("p", script)
		out, _, err := r.process(t.Context(), filepath.Join(l.bin, "p"), nil, nil)
		if (err == nil) != late {
			t.Errorf("%s: error %v", script, err)
		}
		proc := "/proc/" + strings.TrimSpace(string(out))
		if there := exists(proc); there != late {
			t.Errorf("%s: %s is there: %t", script, proc, there)
		}
		r.reaper.wait()
		if exists(proc) {
			t.Errorf("%s: %s is left", script, proc)
		}
	}
}

// TestOutputOfChildren: what a plugin has started and left behind neither holds
// up its answer nor dies with the request.
func TestOutputOfChildren(t *testing.T) {
	l := newLab(t)
	r := &runner{}
	l.plugin("p", "sleep 60 & echo $!")
	ctx, cancel := context.WithCancel(t.Context())
	out, _, err := r.process(ctx, filepath.Join(l.bin, "p"), nil, []string{"PATH=" + os.Getenv("PATH")})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	r.reaper.wait()
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("what the plugin left behind: %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
