// Package storage is the part of a node in the storage of its cluster: it tells which
// CSI drivers are on the node, knows what the cluster says of drivers, and waits until
// volumes are attached to the node, which others do.
//
// It mounts nothing: that is for internal/node/volume.
package storage

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/volume/csi"
)

// Storage is that of one node.
type Storage struct {
	client  *cluster.Client
	node    string
	warn    func(error)
	objects *cluster.Store[*storagev1.CSIDriver]
	follow  func(context.Context)
	drivers drivers
	ask     func(ctx context.Context, driver string) (csi.NodeInfo, error) // see Asks
	asking  singleflight.Group
	log     *slog.Logger
	latest
}

// New makes it; nothing is asked of the API server before Run. Warn is told what keeps the
// cluster from knowing the drivers, once as long as it is the same; it must not wait.
func New(client *cluster.Client, node string, warn func(error), log *slog.Logger) *Storage {
	s := &Storage{client: client, node: node, warn: warn, log: log, drivers: newDrivers(), latest: latest{changed: make(chan struct{})}}
	s.objects, s.follow = cluster.Follow(client, cluster.Query{
		From: storagev1.SchemeGroupVersion.WithResource("csidrivers"), Log: log,
	}, &storagev1.CSIDriver{}, func(d *storagev1.CSIDriver) *storagev1.CSIDriver {
		d.ManagedFields = nil
		return d
	})
	return s
}

// Run tells of the drivers until ctx ends. The node is registered by then, and See was
// called.
func (s *Storage) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { s.follow(ctx) })
	running.Go(func() { s.publish(ctx) })
	running.Go(func() { s.renew(ctx) })
	running.Wait()
	return nil
}

// Driver is the object of a driver, or nil if there is none. It is read only.
func (s *Storage) Driver(name string) (*storagev1.CSIDriver, error) {
	if st := s.objects.Status(); !st.Synced {
		return nil, fmt.Errorf("which CSIDriver objects there are is not known yet: %w: %s", errdefs.ErrUnavailable, cmp.Or(st.Trouble, "the API server has not answered"))
	}
	return s.objects.Get(name), nil
}

// latest is the newest version of the Node object.
type latest struct {
	mu      sync.Mutex
	seen    *corev1.Node
	changed chan struct{} // closed when there is another
}

// See takes a version of the Node object, each time that there is another.
func (l *latest) See(n *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = n
	close(l.changed)
	l.changed = make(chan struct{})
}

// Node is the newest version that was seen, or nil. It is read only.
func (l *latest) Node() *corev1.Node {
	node, _ := l.now()
	return node
}

func (l *latest) now() (*corev1.Node, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen, l.changed
}

// UniqueName is how nodes and controllers call a volume that can be attached.
func UniqueName(id csi.ID) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + id.Driver + "^" + id.Handle)
}
