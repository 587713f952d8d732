package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/cgroups"
)

// startSlice starts the slice of a pod and makes systemd stop each slice above
// it, as far as they are new, with the last one in it. That is left to systemd
// because nobody else can be sure that no pod begins at the same moment, and
// stopping a slice stops what is in it.
//
// systemd takes the setting with a new unit only, and together with the pod's:
// alone, such a slice would be stopped before the pod's is there.
func startSlice(ctx context.Context, name string) error {
	var above []systemd.PropertyCollection
	for _, slice := range slicesAbove(name) {
		_, err := os.Stat(filepath.Join(sliceRoot(), slicePath(slice)))
		if errors.Is(err, fs.ErrNotExist) {
			above = append(above, systemd.PropertyCollection{Name: slice, Properties: poolProperties()})
		}
	}
	if len(above) == 0 {
		return nil // whoever makes the pod's cgroup starts its slice
	}
	return startUnit(ctx, name, append(sliceProperties(), systemd.PropDescription("Pod of Fairlead")), above)
}

// adoptSlices has systemd stop the slices above a pod's that is there: those
// that it found may have gone before its own began, and systemd then makes them
// again without being told to stop them. A slice that has no unit file, neither
// somebody's nor one of systemd's for what it was told, still takes the setting.
func adoptSlices(ctx context.Context, name string) error {
	var errs []error
	for _, slice := range slicesAbove(name) {
		if _, err := os.Stat(filepath.Join(toldUnits, slice)); err == nil {
			continue
		}
		errs = append(errs, startUnit(ctx, slice, poolProperties(), nil))
	}
	return errors.Join(errs...)
}

// toldUnits is where systemd keeps the units that it was told of by a call.
const toldUnits = "/run/systemd/transient"

func startUnit(ctx context.Context, name string, props []systemd.Property, above []systemd.PropertyCollection) error {
	conn, err := systemd.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("ask systemd for the slice %s: %w", name, err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err := conn.StartTransientUnitAux(ctx, name, "replace", props, above, done); err != nil {
		return fmt.Errorf("ask systemd for the slice %s: %w", name, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("ask systemd for the slice %s: the job's result is %q", name, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ask systemd for the slice %s: %w", name, context.Cause(ctx))
	}
}

// poolProperties are those of the slices above pods'.
func poolProperties() []systemd.Property {
	return append(sliceProperties(), property("StopWhenUnneeded", true), systemd.PropDescription("Pods of Fairlead"))
}

// sliceProperties are those that runtimes give to slices.
func sliceProperties() []systemd.Property {
	props := []systemd.Property{property("DefaultDependencies", false)}
	for _, what := range []string{"Memory", "CPU", "Tasks"} {
		props = append(props, property(what+"Accounting", true))
	}
	return props
}

func property(name string, value bool) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}

// slicesAbove are the slices that a slice is in, by systemd's rule that
// a-b.slice is in a.slice.
func slicesAbove(name string) []string {
	var above []string
	steps := strings.Split(strings.TrimSuffix(name, ".slice"), "-")
	for n := 1; n < len(steps); n++ {
		above = append(above, strings.Join(steps[:n], "-")+".slice")
	}
	return above
}

// slicePath is where the cgroup of a slice is.
func slicePath(name string) string {
	return filepath.Join(append(slicesAbove(name), name)...)
}

// sliceRoot is the hierarchy that shows which slices there are.
func sliceRoot() string {
	if cgroups.IsCgroup2UnifiedMode() {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/systemd"
}
