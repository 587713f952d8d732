// Package csitest is a CSI driver for tests. It serves the node's part of the
// interface by gRPC on a unix socket, as real ones do, and mounts folders by
// binding them. It is held to the interface's rules: calls may be repeated, a
// volume is published only where it is staged, and unstaged only when nobody has it.
package csitest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Driver is one driver. Fields are set before it is called.
type Driver struct {
	spec.UnimplementedNodeServer
	// Abilities are those of the node service.
	Abilities []spec.NodeServiceCapability_RPC_Type
	// Data is the folder with one folder for each volume.
	Data string
	// Hang makes every call wait until its caller has had enough.
	Hang bool
	// Keep makes it answer that it has unmounted what it has not.
	Keep bool

	mu    sync.Mutex
	calls []proto.Message
	fail  map[string]error
	stop  map[string]chan struct{}
}

// Serve starts a driver and returns the path of its socket. It ends with the test.
func Serve(t *testing.T, d *Driver) string {
	dir, err := os.MkdirTemp("", "csi") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if d.Data == "" {
		d.Data = filepath.Join(dir, "data")
	}
	server := grpc.NewServer()
	spec.RegisterNodeServer(server, d)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
		_ = os.RemoveAll(dir)
	})
	return socket
}

// Fail makes the next call of that name fail after it has done its work.
func (d *Driver) Fail(call string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		d.fail = map[string]error{}
	}
	d.fail[call] = err
}

// StopAt has the next call of that name do nothing until its caller has had enough, as
// when that is killed meanwhile. The channel is closed once there is such a call.
func (d *Driver) StopAt(call string) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop == nil {
		d.stop = map[string]chan struct{}{}
	}
	reached := make(chan struct{})
	d.stop[call] = reached
	return reached
}

// await is for the beginning of a call. An error is that it is not to do anything.
func (d *Driver) await(ctx context.Context, call string) error {
	d.mu.Lock()
	reached := d.stop[call]
	delete(d.stop, call)
	d.mu.Unlock()
	if reached == nil {
		return nil
	}
	close(reached)
	<-ctx.Done()
	return ctx.Err()
}

// Calls are the requests so far, without those that only ask.
func (d *Driver) Calls() []proto.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// did records a call and says how it ends.
func (d *Driver) did(ctx context.Context, call string, m proto.Message, err error) error {
	if d.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, m)
	if err == nil {
		err = d.fail[call]
	}
	delete(d.fail, call)
	return err
}

// NodeGetInfo tells a name.
func (d *Driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: "node-1", MaxVolumesPerNode: 7, AccessibleTopology: &spec.Topology{Segments: map[string]string{"zone": "a"}}}, nil
}

// NodeGetCapabilities tells the abilities.
func (d *Driver) NodeGetCapabilities(ctx context.Context, _ *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	if d.Hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r := &spec.NodeGetCapabilitiesResponse{}
	for _, a := range d.Abilities {
		r.Capabilities = append(r.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: a}},
		})
	}
	return r, nil
}

// NodeStageVolume binds the volume's folder to the staging folder.
func (d *Driver) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	if err := d.await(ctx, "NodeStageVolume"); err != nil {
		return nil, err
	}
	if info, err := os.Stat(r.GetStagingTargetPath()); err != nil || !info.IsDir() {
		return nil, status.Error(codes.InvalidArgument, "the staging folder is not there")
	}
	err := bind(filepath.Join(d.Data, r.GetVolumeId()), r.GetStagingTargetPath())
	return &spec.NodeStageVolumeResponse{}, d.did(ctx, "NodeStageVolume", r, err)
}

// NodePublishVolume binds what is staged, or else the volume's folder.
func (d *Driver) NodePublishVolume(ctx context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if err := d.await(ctx, "NodePublishVolume"); err != nil {
		return nil, err
	}
	from := filepath.Join(d.Data, r.GetVolumeId())
	if staged := r.GetStagingTargetPath(); staged != "" {
		if there, err := mountinfo.Mounted(staged); err != nil || !there {
			return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
		}
		from = staged
	}
	err := bind(from, r.GetTargetPath())
	return &spec.NodePublishVolumeResponse{}, d.did(ctx, "NodePublishVolume", r, err)
}

// NodeUnpublishVolume unmounts the target.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	if err := d.await(ctx, "NodeUnpublishVolume"); err != nil {
		return nil, err
	}
	var err error
	if !d.Keep {
		err = unbind(r.GetTargetPath())
	}
	return &spec.NodeUnpublishVolumeResponse{}, d.did(ctx, "NodeUnpublishVolume", r, err)
}

// NodeUnstageVolume unmounts the staging folder, unless somebody has the volume.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	if err := d.await(ctx, "NodeUnstageVolume"); err != nil {
		return nil, err
	}
	var err error
	mounts, listErr := mountinfo.GetMounts(nil)
	for _, m := range mounts {
		within := strings.HasPrefix(m.Root+"/", filepath.Join(d.Data, r.GetVolumeId())+"/")
		if within && m.Mountpoint != r.GetStagingTargetPath() {
			err = status.Errorf(codes.FailedPrecondition, "it is still published at %s", m.Mountpoint)
		}
	}
	if err == nil {
		err = errors.Join(listErr, unbind(r.GetStagingTargetPath()))
	}
	return &spec.NodeUnstageVolumeResponse{}, d.did(ctx, "NodeUnstageVolume", r, err)
}

// NodeExpandVolume grows nothing, and wants the volume to be where it is said to be.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	if err := d.await(ctx, "NodeExpandVolume"); err != nil {
		return nil, err
	}
	if there, err := mountinfo.Mounted(r.GetVolumePath()); err != nil || !there {
		return nil, status.Error(codes.NotFound, "the volume is not there")
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, d.did(ctx, "NodeExpandVolume", r, nil)
}

func bind(from, to string) error {
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if there, err := mountinfo.Mounted(to); err != nil || there {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

func unbind(path string) error {
	there, err := mountinfo.Mounted(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if there {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
