package cri

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/yaml"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// A sandbox costs more than none, and nothing is left of what was measured.
func TestOverheadOfHandlers(t *testing.T) {
	path := node.Runsc()
	if path == "" {
		t.Skip("gVisor's runsc is not on PATH, and FAIRLEAD_TEST_RUNSC does not name it; make test installs it")
	}
	n := node.Start(t, node.RunscConfig(path)+"[handlers.runc]\n[handlers.crun]\n[handlers.gone]\npath = \"/nonexistent/runc\"\n")
	out, err := n.CLI("handlers", "overhead", "--pods", "3", "--window", "2s", "-o", "json", "runc", "crun", "runsc")
	if err != nil {
		t.Fatal(err)
	}
	var list []adminv1.Overhead
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	of := map[string]adminv1.Overhead{}
	for _, o := range list {
		of[o.Name] = o
		if o.Pods != 3 || o.MeasuredAt.IsZero() || o.MemoryP99 < o.MemoryP50 || o.CPUP99 < o.CPUP50 {
			t.Errorf("%+v", o)
		}
	}
	for _, name := range []string{"runc", "crun"} {
		if most := of[name].MemoryP99 + of[name].MonitorMemory; most > 4<<20 {
			t.Errorf("%s takes %d bytes, although it keeps no process", name, most)
		}
		if least := of["runsc"].MemoryP50; least < of[name].MemoryP99+8<<20 {
			t.Errorf("runsc takes %d bytes and %s %d", least, name, of[name].MemoryP99)
		}
	}
	// What was measured is what is told from now on.
	told, err := n.CLI("handlers", "-o", "json")
	if err != nil || !strings.Contains(told, fmt.Sprintf(`"memoryP99": %d`, of["runsc"].MemoryP99)) {
		t.Errorf("%v: %s", err, told)
	}
	if out, err := n.CLI("handlers", "overhead", "--pods", "1", "--window", "1s", "gone"); err == nil || !strings.Contains(err.Error(), "/nonexistent/runc") {
		t.Errorf("a handler that does not work: %v %s", err, out)
	}
	if _, err := n.CLI("handlers", "overhead", "nobody"); err == nil || !strings.Contains(err.Error(), "runsc") {
		t.Errorf("a handler that is not there: %v", err)
	}
	nothingMeasured(t, n)
}

// nothingMeasured says that nothing of a measurement is there any more.
func nothingMeasured(t *testing.T, n *node.Node) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(n.State, "trials", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if out, err := n.CLI("fsck"); err != nil {
		t.Errorf("fsck: %v: %s", err, out)
	}
}

func TestOverheadAsRuntimeClasses(t *testing.T) {
	path := node.Runsc()
	if path == "" {
		t.Skip("gVisor's runsc is not on PATH, and FAIRLEAD_TEST_RUNSC does not name it; make test installs it")
	}
	n := node.Start(t, node.RunscConfig(path))
	out, err := n.CLI("handlers", "overhead", "--pods", "1", "--window", "1s", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	var class nodev1.RuntimeClass
	if err := yaml.UnmarshalStrict([]byte(out), &class); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if class.APIVersion != "node.k8s.io/v1" || class.Kind != "RuntimeClass" || class.Name != "runsc" || class.Handler != "runsc" {
		t.Errorf("%+v", class)
	}
	memory := class.Overhead.PodFixed.Memory()
	if memory.Value() < 8<<20 || memory.Value()%(1<<20) != 0 {
		t.Errorf("the overhead is %s", memory)
	}
	nothingMeasured(t, n)
}

// A daemon that dies meanwhile leaves pods, which the next one removes.
func TestOverheadOfADeadDaemon(t *testing.T) {
	n := node.Start(t, "[handlers.runc]\n")
	done := make(chan error, 1)
	go func() {
		_, err := n.CLI("handlers", "overhead", "--pods", "2", "--window", "1m")
		done <- err
	}()
	running := func() (pods int) {
		bundles, _ := filepath.Glob(filepath.Join(n.State, "trials", "runc-*", "pid"))
		for _, file := range bundles {
			if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
				pods++
			}
		}
		return pods
	}
	node.Eventually(t, "two pods", func() bool { return running() == 2 })
	if _, err := n.CLI("handlers", "overhead", "--pods", "1", "--window", "1s"); err == nil || !strings.Contains(err.Error(), "being done already") {
		t.Errorf("twice at once: %v", err)
	}
	n.Kill(syscall.SIGKILL)
	if err := <-done; err == nil {
		t.Error("it was measured by nobody")
	}
	n.Start()
	if _, err := n.CLI("handlers", "verify", "runc"); err != nil {
		t.Error(err)
	}
	nothingMeasured(t, n)
}
