package lifecycle

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"fairlead.run/internal/pod"
)

func levelOf(t *testing.T, c *Core, id pod.ID) string {
	t.Helper()
	r, err := c.FindPod(string(id))
	if err != nil {
		t.Fatal(err)
	}
	return r.Labels.Level()
}

func runLabelled(t *testing.T, c *Core, cfg pod.Config) pod.ID {
	t.Helper()
	id, err := c.RunPod(ctx, cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Pods that ask for no level get one that no other pod or container has, also
// when they start at once, and after a restart; it is free when the pod is gone.
func TestLevels(t *testing.T) {
	h, d := newHost(), newDisk()
	c, kill := boot(t, h, d)
	asking := podConfig("asking")
	asking.Security.SELinux = &pod.SELinuxOptions{Level: "s0:c2"}
	other := runLabelled(t, c, asking)
	if got := levelOf(t, c, other); got != "s0:c2" {
		t.Fatalf("asked for s0:c2, got %s", got)
	}
	var both [2]pod.ID
	var wg sync.WaitGroup
	for i, name := range []string{"a", "b"} {
		wg.Go(func() { both[i] = runLabelled(t, c, podConfig(name)) })
	}
	wg.Wait()
	got := []string{levelOf(t, c, both[0]), levelOf(t, c, both[1])}
	slices.Sort(got)
	if !slices.Equal(got, []string{"s0:c1", "s0:c3"}) {
		t.Fatalf("levels %v, want the two that are free", got)
	}
	kill()
	c, kill = boot(t, h, d)
	defer kill()
	late := runLabelled(t, c, podConfig("late"))
	if got := levelOf(t, c, late); got != "s0:c4" {
		t.Errorf("after a restart the level %s, want the only free one", got)
	}
	freed := levelOf(t, c, both[0])
	for _, end := range []func() error{
		func() error { return c.StopPod(ctx, both[0]) }, func() error { return c.RemovePod(ctx, both[0]) },
	} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if got := levelOf(t, c, runLabelled(t, c, podConfig("last"))); got != freed {
		t.Errorf("the level %s, want %s of the pod that is gone", got, freed)
	}
}

// A level that only a container has asked for is taken, too, and one of a pod
// that could not be made is free again.
func TestLevelsOfContainersAndFailures(t *testing.T) {
	h := newHost()
	c, kill := boot(t, h, newDisk())
	defer kill()
	first := runLabelled(t, c, podConfig("first"))
	cfg := containerConfig("main")
	cfg.Security.SELinux = &pod.SELinuxOptions{Level: "s0:c2"}
	if _, err := c.CreateContainer(ctx, first, cfg); err != nil {
		t.Fatal(err)
	}
	h.set(func() { h.fail["net.attach"] = errBoom })
	if _, err := c.RunPod(ctx, podConfig("fails"), ""); err == nil {
		t.Fatal("no error")
	}
	h.set(func() { delete(h.fail, "net.attach") })
	if got := levelOf(t, c, runLabelled(t, c, podConfig("second"))); got != "s0:c3" {
		t.Errorf("the level %s, want the first one free, s0:c3", got)
	}
}

// The root file system and the bundle of a container have its label.
func TestLabelsReachDrivers(t *testing.T) {
	h := newHost()
	c, kill := boot(t, h, newDisk())
	defer kill()
	_, ctr := started(t, c, "web")
	files := string(ctr) + ":u:r:t:s0:c1"
	h.set(func() {
		if got := h.labels[string(ctr)]; !slices.Equal(got, []string{files, files, "p:s0:c1"}) {
			t.Errorf("labels %v", got)
		}
	})
}

// After a restart a handler's abilities are not known before it was tried: a
// container waits for that, rather than to go without what protects it.
func TestContainerWaitsForItsHandlersTrial(t *testing.T) {
	h := newHost()
	c, kill := boot(t, h, newDisk())
	defer kill()
	id := runLabelled(t, c, podConfig("web"))
	h.set(func() { h.untried, h.fail["handler.get"] = true, errBoom })
	if _, err := c.CreateContainer(ctx, id, containerConfig("main")); !errors.Is(err, errBoom) {
		t.Errorf("got %v, want what the trial says", err)
	}
	h.set(func() { delete(h.fail, "handler.get") })
	if _, err := c.CreateContainer(ctx, id, containerConfig("main")); err != nil {
		t.Error(err)
	}
}
