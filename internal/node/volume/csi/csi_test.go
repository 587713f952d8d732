package csi_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/internal/node/volume/csi/csitest"
)

const stages = spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME

type bench struct {
	*csi.Client
	driver *csitest.Driver
	dir    string
}

func newBench(t *testing.T, d *csitest.Driver) *bench {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	socket := csitest.Serve(t, d)
	b := &bench{driver: d, dir: t.TempDir()}
	b.Client = csi.New(csi.Config{
		Socket: func(driver string) (string, error) {
			if driver != "test.csi" {
				return "", fmt.Errorf("no driver %s: %w", driver, errdefs.ErrNotFound)
			}
			return socket, nil
		},
		Staging: filepath.Join(b.dir, "staging"), Timeout: time.Minute,
	})
	t.Cleanup(func() { // what a failed test has left
		for _, pattern := range []string{"*/mount", "staging/*/*/globalmount"} {
			found, _ := filepath.Glob(filepath.Join(b.dir, pattern))
			for _, m := range found {
				_ = unix.Unmount(m, unix.MNT_DETACH)
			}
		}
	})
	return b
}

func (b *bench) target(name string) string { return filepath.Join(b.dir, name, "mount") }

// names are the calls so far.
func (b *bench) names() string {
	var out []string
	for _, m := range b.driver.Calls() {
		name := string(m.ProtoReflect().Descriptor().Name())
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(name, "Node"), "VolumeRequest"))
	}
	return strings.Join(out, " ")
}

func (b *bench) wantCalls(t *testing.T, want string) {
	t.Helper()
	if got := b.names(); got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func (b *bench) publish(t *testing.T, v csi.Volume) {
	t.Helper()
	if _, err := b.Publish(t.Context(), v); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) unpublish(t *testing.T, target string) {
	t.Helper()
	if err := b.Unpublish(t.Context(), target); err != nil {
		t.Fatal(err)
	}
}

// nothingLeft wants no folder of a volume where it was staged.
func (b *bench) nothingLeft(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(b.dir, "staging/*/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTwoPodsShareAStagedVolume(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	one, two := csi.Volume{Driver: "test.csi", Handle: "v/1", Target: b.target("one")}, csi.Volume{Driver: "test.csi", Handle: "v/1", Target: b.target("two")}
	b.publish(t, one)
	b.publish(t, two)
	if err := os.WriteFile(filepath.Join(one.Target, "f"), []byte("shared"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(two.Target, "f")); string(data) != "shared" {
		t.Errorf("%q %v", data, err)
	}
	b.unpublish(t, one.Target)
	if b.Holds(one.Target) || !b.Holds(two.Target) {
		t.Error("which one is published?")
	}
	b.wantCalls(t, "Stage Publish Publish Unpublish")
	b.unpublish(t, two.Target)
	b.wantCalls(t, "Stage Publish Publish Unpublish Unpublish Unstage")
	b.nothingLeft(t)
	b.unpublish(t, two.Target) // of what nobody knows any more
	b.wantCalls(t, "Stage Publish Publish Unpublish Unpublish Unstage")
	b.publish(t, one)
	b.wantCalls(t, "Stage Publish Publish Unpublish Unpublish Unstage Stage Publish")
}

// TestTimed counts what drivers have done and have not, and what was asked of them alone.
func TestTimed(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	one, two := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}, csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("two")}
	b.driver.Fail("NodePublishVolume", status.Error(codes.Internal, "no"))
	if _, err := b.Publish(t.Context(), one); err == nil {
		t.Fatal("no error")
	}
	b.publish(t, one)
	b.publish(t, two)
	notAttached := two
	notAttached.Attach = func(context.Context) (map[string]string, error) { return nil, errors.New("it is not") }
	if _, err := b.Publish(t.Context(), notAttached); err == nil {
		t.Fatal("no error")
	}
	b.unpublish(t, one.Target)
	b.unpublish(t, two.Target)
	b.unpublish(t, two.Target)
	var out strings.Builder
	if err := b.Metrics(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`operation_name="volume_mount",status="fail-unknown",migrated="false"} 1`, `operation_name="volume_mount",status="success",migrated="false"} 2`,
		`operation_name="volume_unmount",status="success",migrated="false"} 2`, `operation_name="unmount_device",status="success",migrated="false"} 1`,
	} {
		if line := `storage_operation_duration_seconds_count{volume_plugin="kubernetes.io/csi:test.csi",` + want; !strings.Contains(out.String(), line+"\n") {
			t.Errorf("no %s in\n%s", line, &out)
		}
	}
}

// TestStagedAgain stages a volume anew that could not be published: its driver may have lost it.
func TestStagedAgain(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	one, two := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}, csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("two")}
	b.publish(t, one)
	b.driver.Fail("NodePublishVolume", status.Error(codes.FailedPrecondition, "it is not staged"))
	if _, err := b.Publish(t.Context(), two); err == nil {
		t.Error("no error")
	}
	b.publish(t, two)
	b.publish(t, one)
	b.wantCalls(t, "Stage Publish Publish Stage Publish Publish")
}

func TestRequestsSayWhatTheVolumeSays(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{
		stages, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP, spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}})
	group := int64(2000)
	v := csi.Volume{
		Driver: "test.csi", Handle: "v", Target: b.target("one"), ReadOnly: true, FSType: "ext4", MountFlags: []string{"noatime"},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Attributes: map[string]string{"a": "1"},
		Attach:       func(context.Context) (map[string]string, error) { return map[string]string{"dev": "sdb"}, nil },
		StageSecrets: map[string]string{"s": "2"}, PublishSecrets: map[string]string{"p": "3"}, Group: &group,
	}
	done, err := b.Publish(t.Context(), v)
	if err != nil || !done.GroupSet {
		t.Fatal(done, err)
	}
	calls := b.driver.Calls()
	stage, publish := calls[0].(*spec.NodeStageVolumeRequest), calls[1].(*spec.NodePublishVolumeRequest)
	if stage.GetSecrets()["s"] != "2" || publish.GetSecrets()["p"] != "3" || len(publish.GetSecrets()) != 1 {
		t.Error("secrets went astray")
	}
	if stage.GetPublishContext()["dev"] != "sdb" || publish.GetPublishContext()["dev"] != "sdb" || publish.GetVolumeContext()["a"] != "1" || !publish.GetReadonly() {
		t.Errorf("%v", publish)
	}
	for _, c := range []*spec.VolumeCapability{stage.GetVolumeCapability(), publish.GetVolumeCapability()} {
		m := c.GetMount()
		if m.GetFsType() != "ext4" || m.GetVolumeMountGroup() != "2000" || len(m.GetMountFlags()) != 1 || c.GetAccessMode().GetMode() != spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
			t.Errorf("%v", c)
		}
	}
	b.unpublish(t, v.Target)
}

func TestInlineVolumesAreNotStaged(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	v := csi.Volume{Driver: "test.csi", Handle: "csi-x", Inline: true, Target: b.target("one")}
	b.publish(t, v)
	b.unpublish(t, v.Target)
	b.wantCalls(t, "Publish Unpublish")
}

// Every call may fail after it has done its work, as when the agent is killed before
// it has the answer. The same request then ends what was begun, by a new client.
func TestCallsWhoseAnswerIsLost(t *testing.T) {
	for _, call := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		t.Run(call, func(t *testing.T) {
			b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
			v := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}
			b.driver.Fail(call, status.Error(codes.Internal, "lost"))
			_, err := b.Publish(t.Context(), v)
			if b.Holds(v.Target) != (err == nil) {
				t.Errorf("published: %v", err)
			}
			if err == nil {
				err = b.Unpublish(t.Context(), v.Target)
			}
			if err == nil || !strings.Contains(err.Error(), call) || !strings.Contains(err.Error(), "lost") {
				t.Fatal(err)
			}
			// The pod is removed without another attempt.
			b.unpublish(t, v.Target)
			b.nothingLeft(t)
			if _, err := os.Stat(v.Target); !os.IsNotExist(err) {
				t.Errorf("the target is left: %v", err)
			}
		})
	}
}

// A driver that is not registered, as just after the agent has begun, has said nothing: it
// may have unmounted the volume, and have more to undo.
func TestDriversThatAreNotRegisteredYet(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	v := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one"), Attach: func(context.Context) (map[string]string, error) { return nil, nil }}
	b.publish(t, v)
	staged, _ := filepath.Glob(filepath.Join(b.dir, "staging/*/*/globalmount"))
	if len(staged) != 1 {
		t.Fatal(staged)
	}
	if err := errors.Join(unix.Unmount(v.Target, 0), unix.Unmount(staged[0], 0)); err != nil {
		t.Fatal(err)
	}
	early := csi.New(csi.Config{
		Socket: func(driver string) (string, error) {
			return "", fmt.Errorf("no driver %s: %w", driver, errdefs.ErrNotFound)
		},
		Staging: filepath.Join(b.dir, "staging"), Pods: b.dir, Timeout: time.Minute,
	})
	if err := early.Unpublish(t.Context(), v.Target); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("nobody was asked: %v", err)
	}
	b.unpublish(t, v.Target)
	b.wantCalls(t, "Stage Publish Unpublish Unstage")
	b.nothingLeft(t)
}

// The folder of a volume that a kubelet had staged here before is left by nobody.
func TestVolumesThatAKubeletHadStaged(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	v := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}
	dir := filepath.Join(b.dir, "staging", v.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(v.Handle))))
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	b.publish(t, v)
	b.unpublish(t, v.Target)
	b.nothingLeft(t)
}

// A driver that takes long to make a volume larger is left to it, and is not asked twice. It holds
// up nobody who unmounts the volume.
func TestExpansionsThatTakeLong(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages, spec.NodeServiceCapability_RPC_EXPAND_VOLUME}})
	v := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}
	b.publish(t, v)
	at := b.driver.StopAt("NodeExpandVolume")
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if did, err := b.Expand(ctx, v, 1<<30); did || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still at it") {
			t.Errorf("%t, %v", did, err)
		}
		cancel()
	}
	<-at
	began := time.Now()
	b.unpublish(t, v.Target)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the end of the pod took %s", took)
	}
	b.wantCalls(t, "Stage Publish Unpublish Unstage")
	// What it has done meanwhile is told to who asks next.
	b.publish(t, v)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := b.Expand(ended, v, 1<<30); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 2 {
		if did, err := b.Expand(t.Context(), v, 1<<30); !did || err != nil {
			t.Errorf("%t, %v", did, err)
		}
	}
	b.wantCalls(t, "Stage Publish Unpublish Unstage Stage Publish Expand Expand")
	b.unpublish(t, v.Target)
}

// A target whose pod was deleted by force does not keep a volume staged for ever.
func TestUsersThatAreGoneDoNotCount(t *testing.T) {
	b := newBench(t, &csitest.Driver{Abilities: []spec.NodeServiceCapability_RPC_Type{stages}})
	one, two := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}, csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("two")}
	b.publish(t, one)
	b.publish(t, two)
	if err := errors.Join(unix.Unmount(one.Target, 0), os.RemoveAll(filepath.Dir(one.Target))); err != nil {
		t.Fatal(err)
	}
	b.unpublish(t, two.Target)
	b.wantCalls(t, "Stage Publish Publish Unpublish Unstage")
	b.nothingLeft(t)
}

// After a reboot the record is there and the mount is not.
func TestRecordsOutliveTheirMounts(t *testing.T) {
	b := newBench(t, &csitest.Driver{})
	v := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}
	b.publish(t, v)
	if err := unix.Unmount(v.Target, 0); err != nil {
		t.Fatal(err)
	}
	if b.Holds(v.Target) {
		t.Error("nothing is mounted")
	}
	b.driver.Fail("NodePublishVolume", status.Error(codes.Internal, "not yet"))
	if _, err := b.Publish(t.Context(), v); err == nil || b.Holds(v.Target) {
		t.Error("it was not published since", err)
	}
	b.publish(t, v)
	// A later attempt that fails takes nothing away.
	b.driver.Fail("NodePublishVolume", status.Error(codes.Internal, "not now"))
	if _, err := b.Publish(t.Context(), v); err == nil || !b.Holds(v.Target) {
		t.Error("it is published", err)
	}
	b.unpublish(t, v.Target)
}

// A driver that answers and leaves its mount there is not believed: what is in it
// would be deleted with the pod's folder.
func TestAMountThatStaysIsNoticed(t *testing.T) {
	b := newBench(t, &csitest.Driver{})
	v := csi.Volume{Driver: "test.csi", Handle: "v", Target: b.target("one")}
	b.publish(t, v)
	b.driver.Keep = true
	if err := b.Unpublish(t.Context(), v.Target); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "is still mounted") {
		t.Error(err)
	}
	b.driver.Keep = false
	b.unpublish(t, v.Target)
}

func TestDriversThatDoNotAnswer(t *testing.T) {
	b := newBench(t, &csitest.Driver{Hang: true})
	client := csi.New(csi.Config{Socket: func(string) (string, error) { return csitest.Serve(t, b.driver), nil }, Staging: b.dir, Timeout: 50 * time.Millisecond})
	_, err := client.Publish(t.Context(), csi.Volume{Driver: "slow.csi", Handle: "v", Target: b.target("one")})
	if !errors.Is(err, errdefs.ErrDeadline) || !strings.Contains(err.Error(), "CSI driver slow.csi: NodeGetCapabilities") {
		t.Error(err)
	}
	_, err = b.Publish(t.Context(), csi.Volume{Driver: "none.csi", Handle: "v", Target: b.target("one")})
	if !errors.Is(err, errdefs.ErrNotFound) {
		t.Error(err)
	}
	gone := csi.New(csi.Config{Socket: func(string) (string, error) { return filepath.Join(b.dir, "no.sock"), nil }, Staging: b.dir, Timeout: time.Minute})
	if _, err := gone.Info(t.Context(), "gone.csi"); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
}

func TestInfo(t *testing.T) {
	b := newBench(t, &csitest.Driver{})
	got, err := b.Info(t.Context(), "test.csi")
	if err != nil || got.ID != "node-1" || got.MaxVolumes != 7 || got.Topology["zone"] != "a" {
		t.Errorf("%+v %v", got, err)
	}
}
