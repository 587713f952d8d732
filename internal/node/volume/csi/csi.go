package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/keylock"
)

// Config is what a Client works with. What is not said to be optional is required.
type Config struct {
	// Socket is the path of a driver's socket. The error wraps errdefs.ErrNotFound
	// if no such driver is registered.
	Socket func(driver string) (string, error)
	// Staging is the folder that volumes are staged in, one folder for each. Drivers
	// see it by the same path.
	Staging string
	// Pods is the folder that targets are in, for Load; it may be empty.
	Pods string
	// Changed is that Attached may be another; it must not wait. Nil if nobody asks.
	Changed func()
	// Timeout bounds a call. A driver that does not answer costs the pod that waits
	// for it, and nobody else.
	Timeout time.Duration
}

// Client calls drivers. It may be used by several goroutines.
type Client struct {
	cfg   Config
	locks keylock.Locks[string] // of volumes, by driver and handle
	stats *metrics

	mu      sync.Mutex
	records map[string]record     // by target, as they are on disk
	staged  map[string]bool       // folders in which drivers have staged volumes for this agent
	growing map[string]*expansion // by target
}

// New makes a Client.
func New(cfg Config) *Client {
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	return &Client{cfg: cfg, stats: newMetrics(), records: map[string]record{}, staged: map[string]bool{}, growing: map[string]*expansion{}}
}

// Volume is what a driver is asked to mount.
type Volume struct {
	Driver, Handle string
	Inline         bool   // made by the driver for one pod; never staged
	Target         string // where; its folder is of this volume alone
	ReadOnly       bool
	FSType         string
	MountFlags     []string
	AccessModes    []corev1.PersistentVolumeAccessMode
	Attributes     map[string]string // that the volume was created with
	PodInfo        map[string]string // of the pod that it is published for; it is staged for any
	// Attach waits until the volume is attached to this node, and returns what that has
	// told for the driver; nil if it need not be. By then Attached has the volume.
	Attach         func(context.Context) (map[string]string, error)
	StageSecrets   map[string]string
	PublishSecrets map[string]string
	ExpandSecrets  map[string]string
	Group          *int64 // that is to have the files; nil for none
}

// Published says what a driver did beside mounting.
type Published struct {
	GroupSet bool // files belong to the group already
}

// ErrNodeFull is that the node takes no more volumes of a driver, as its controller has found.
var ErrNodeFull = errors.New("the node takes no more volumes of this driver")

// NodeInfo is what a driver says of this node.
type NodeInfo struct {
	ID         string
	MaxVolumes int64 // 0 for no limit
	Topology   map[string]string
}

// Info asks a driver by what name it knows this node.
func (c *Client) Info(ctx context.Context, driver string) (NodeInfo, error) {
	var out NodeInfo
	err := c.call(ctx, driver, "NodeGetInfo", func(ctx context.Context, node spec.NodeClient) error {
		r, err := node.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
		out = NodeInfo{ID: r.GetNodeId(), MaxVolumes: r.GetMaxVolumesPerNode(), Topology: r.GetAccessibleTopology().GetSegments()}
		return err
	})
	if err == nil && out.ID == "" {
		err = fmt.Errorf("CSI driver %s: NodeGetInfo: it says no name for this node: %w", driver, errdefs.ErrUnavailable)
	}
	return out, err
}

type abilities []spec.NodeServiceCapability_RPC_Type

func (a abilities) can(t spec.NodeServiceCapability_RPC_Type) bool { return slices.Contains(a, t) }

func (c *Client) abilities(ctx context.Context, driver string) (abilities, error) {
	var out abilities
	err := c.call(ctx, driver, "NodeGetCapabilities", func(ctx context.Context, node spec.NodeClient) error {
		r, err := node.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
		for _, a := range r.GetCapabilities() {
			out = append(out, a.GetRpc().GetType())
		}
		return err
	})
	return out, err
}

// call makes one call by a connection of its own: drivers are restarted at will.
func (c *Client) call(ctx context.Context, driver, name string, do func(context.Context, spec.NodeClient) error) error {
	socket, err := c.cfg.Socket(driver)
	if err != nil {
		return fmt.Errorf("CSI driver %s: %w", driver, err)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("CSI driver %s: connect to %s: %w", driver, socket, err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := do(ctx, spec.NewNodeClient(conn)); err != nil {
		return fmt.Errorf("CSI driver %s: %s: %w", driver, name, kind(err))
	}
	return nil
}

// kind says by errdefs what a driver's answer means to us, keeping its words.
func kind(err error) error {
	to := map[codes.Code]error{
		codes.NotFound: errdefs.ErrNotFound, codes.InvalidArgument: errdefs.ErrInvalidArgument,
		codes.Unavailable: errdefs.ErrUnavailable, codes.DeadlineExceeded: errdefs.ErrDeadline,
		codes.Unimplemented: errdefs.ErrUnimplemented, codes.ResourceExhausted: errdefs.ErrExhausted,
		codes.FailedPrecondition: errdefs.ErrPrecondition, codes.Aborted: errdefs.ErrUnavailable,
	}[status.Code(err)]
	return errors.Join(err, to)
}

// capability describes a volume to its driver.
func (v *Volume) capability(a abilities) *spec.VolumeCapability {
	mount := &spec.VolumeCapability_MountVolume{FsType: v.FSType, MountFlags: v.MountFlags}
	if v.Group != nil && a.can(spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		mount.VolumeMountGroup = fmt.Sprint(*v.Group)
	}
	return &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: mount},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: v.mode(a)},
	}
}

// mode goes by the first access mode. Several pods of one node may use a volume that
// is ReadWriteOnce, which newer drivers want to be told.
func (v *Volume) mode(a abilities) spec.VolumeCapability_AccessMode_Mode {
	first := corev1.ReadWriteOnce
	if len(v.AccessModes) > 0 {
		first = v.AccessModes[0]
	}
	fine := !v.Inline && a.can(spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	switch {
	case first == corev1.ReadWriteMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case first == corev1.ReadOnlyMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case first == corev1.ReadWriteOncePod && fine:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case fine:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}
