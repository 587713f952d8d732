// Package cluster is a node's side of a real API server: it makes the machine a
// node of the cluster, hands over the pods that are to run here, and tells what
// has become of them. Its parts are the packages below it; this one runs them
// together.
//
// It decides nothing about pods.
package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/cluster/events"
	"fairlead.run/internal/node/cluster/membership"
	"fairlead.run/internal/node/cluster/mirror"
	"fairlead.run/internal/node/cluster/objects"
	"fairlead.run/internal/node/cluster/pace"
	"fairlead.run/internal/node/cluster/statuses"
	"fairlead.run/internal/node/cluster/storage"
)

// Config says which node this is, and who is told what.
type Config struct {
	Client *cluster.Client
	// Events is the client for events, which have limits of their own: they must
	// not delay a status. Nil is Client.
	Events       *cluster.Client
	Registration membership.Registration
	// Said is what the node says of itself now. It is called often.
	Said func(context.Context) membership.Said
	// Pods is told all pods that are to run here, mirror pods left out, by one
	// goroutine, whenever one of them may be another. It is not called before the
	// API server has answered: until then, nobody knows which pods are to run.
	// The pods are read only.
	Pods func([]*corev1.Pod)
	// Changed is told of pods for which a ConfigMap or a Secret may be another.
	Changed func([]types.UID)
	// Lease and Report are after which time the lease is too old, and how often the status is
	// written though nothing has changed; 0 is as by a kubelet.
	Lease, Report time.Duration
	Log           *slog.Logger
}

// Cluster is one API server, as a node sees it.
type Cluster struct {
	cfg      Config
	status   *membership.Status
	lease    *membership.Lease
	statuses *statuses.Writer
	mirrors  *mirror.Mirrors
	recorder *events.Recorder
	objects  *objects.Objects
	storage  *storage.Storage
	pods     *cluster.Store[*corev1.Pod]
	follow   func(context.Context)

	registered atomic.Pointer[corev1.Node] // until the watch has it
	joined     chan struct{}               // closed once it is registered

	mu     sync.Mutex
	held   map[types.UID]string // the version of a pod whose objects are held; "" once it is gone
	static map[types.UID]said
}

// said is the last status of a static pod, for a mirror that may come later.
type said struct {
	pod    *corev1.Pod
	status *corev1.PodStatus
}

// New makes it; nothing is asked of the API server before Run.
func New(cfg Config) *Cluster {
	node, log := cfg.Registration.Name, cfg.Log
	c := &Cluster{cfg: cfg, joined: make(chan struct{}), held: map[types.UID]string{}, static: map[types.UID]said{}}
	c.status = membership.NewStatus(cfg.Client, node, cfg.Said, log)
	c.storage = storage.New(cfg.Client, node, c.warner("FailedCSINode"), log)
	c.status.OnChange(c.storage.See)
	c.storage.OnChange(c.status.Changed)
	c.lease = membership.NewLease(cfg.Client, node, c.uid, log)
	c.lease.Duration, c.status.Report = cmp.Or(cfg.Lease, c.lease.Duration), cmp.Or(cfg.Report, c.status.Report)
	c.statuses = statuses.New(cfg.Client, log, c.statusRefused)
	c.mirrors = mirror.New(cfg.Client, node, c.uid, c.warner("FailedMirrorPod"))
	if cfg.Events == nil {
		cfg.Events = cfg.Client
	}
	c.recorder = events.New(cfg.Events, node, log)
	c.objects = objects.New(cfg.Client, cfg.Changed, c.tokenRefused, log)
	c.pods, c.follow = cluster.Follow(cfg.Client, cluster.Query{
		From: corev1.SchemeGroupVersion.WithResource(cluster.Pods), Selector: fields.OneTermEqualSelector("spec.nodeName", node), Log: log,
	}, &corev1.Pod{}, taken)
	return c
}

// taken is a pod of the API server as the node takes it. Whoever has made it may claim in
// its annotations that it comes from elsewhere: a static pod is never evicted, and its
// status is its mirror's. A mirror says so truly, and is never run.
func taken(p *corev1.Pod) *corev1.Pod {
	p.ManagedFields = nil
	if _, claims := p.Annotations[mirror.AnnotationSource]; claims && !mirror.Is(p) {
		p.Annotations[mirror.AnnotationSource] = "api"
	}
	return p
}

// Run is a node of the cluster until ctx ends. What fails is tried again; it ends
// before only if the node cannot be registered as it is asked to be.
func (c *Cluster) Run(ctx context.Context) error {
	if err := membership.CheckLabels(c.cfg.Registration.Labels); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, run := range []func(context.Context) error{c.statuses.Run, c.recorder.Run, c.objects.Run, c.watch} {
		running.Go(func() { _ = run(ctx) })
	}
	running.Go(func() { c.follow(ctx) })
	node, err := membership.Register(ctx, c.cfg.Client, c.cfg.Registration, c.cfg.Log)
	if err != nil {
		return nil // ctx has ended
	}
	c.registered.Store(node)
	c.storage.See(node)
	close(c.joined)
	// Mirror pods and the CSINode belong to the Node, so that they come after it.
	for _, run := range []func(context.Context) error{c.status.Run, c.lease.Run, c.mirrors.Run, c.storage.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	<-ctx.Done()
	return nil
}

// uid is that of the Node object, or empty before there is one.
func (c *Cluster) uid() types.UID {
	if n := c.Node(); n != nil {
		return n.UID
	}
	return ""
}

// watch hands over the pods, once there is a Node whose labels and taints say which of
// them may run here.
func (c *Cluster) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.joined:
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.pods.Changes():
		}
		if !c.pods.Status().Synced {
			continue
		}
		all := c.pods.List()
		slices.SortFunc(all, func(a, b *corev1.Pod) int {
			if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
				return order
			}
			return strings.Compare(string(a.UID), string(b.UID))
		})
		var pods, mirrors []*corev1.Pod
		for _, p := range all {
			if mirror.Is(p) {
				mirrors = append(mirrors, p)
			} else {
				pods = append(pods, p)
			}
		}
		c.hold(pods)
		c.statuses.Observe(all)
		c.mirrors.Observe(mirrors)
		c.repeat()
		c.cfg.Pods(pods)
	}
}

// hold has what pods refer to read as soon as they are known.
func (c *Cluster) hold(pods []*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := map[types.UID]bool{}
	for _, p := range pods {
		there[p.UID] = true
		version, known := c.held[p.UID]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if known && (version == "" || version == p.ResourceVersion) || !known && ended {
			continue
		}
		c.held[p.UID] = p.ResourceVersion
		c.objects.Hold(p)
	}
	for uid, version := range c.held {
		if !there[uid] && version == "" {
			delete(c.held, uid)
		}
	}
}

// Report says what the status of a pod is now.
func (c *Cluster) Report(pod *corev1.Pod, status *corev1.PodStatus) {
	if !isStatic(pod) {
		c.statuses.Set(pod, status)
		return
	}
	c.mu.Lock()
	c.static[pod.UID] = said{pod, status.DeepCopy()}
	c.mu.Unlock()
	c.repeat()
}

// repeat says of mirrors what was said of their static pods.
func (c *Cluster) repeat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.static {
		if m := c.mirrors.Of(s.pod); m != nil {
			c.statuses.Set(m, s.status)
		}
	}
}

// Gone says that nothing is left of a pod here: no container, no mount, no cgroup.
// It is to be said of each pod, in the end, that was handed over.
func (c *Cluster) Gone(pod *corev1.Pod) {
	c.mu.Lock()
	delete(c.static, pod.UID)
	if _, ok := c.held[pod.UID]; ok {
		c.held[pod.UID] = ""
		c.objects.Release(pod.UID)
	}
	c.mu.Unlock()
	if !isStatic(pod) {
		c.statuses.Gone(pod)
	}
}

// Static is all pods that run here and do not come from the API server, but for those of
// sources that could not be read yet. Until it is called, no mirror pod is deleted.
func (c *Cluster) Static(pods []*corev1.Pod, unread ...string) { c.mirrors.Set(pods, unread...) }

// Mirrors is how many mirror pods the API server has.
func (c *Cluster) Mirrors() int { return c.mirrors.Count() }

// isStatic says that a pod does not come from the API server.
func isStatic(pod *corev1.Pod) bool {
	source := pod.Annotations[mirror.AnnotationSource]
	return source != "" && source != "api"
}

// Event tells of something that happened to a pod. Events of a static pod are about
// its mirror, if it has one.
func (c *Cluster) Event(pod *corev1.Pod, kind, reason, message string) {
	c.ContainerEvent(pod, ContainerEvent{Kind: kind, Reason: reason, Message: message})
}

// ContainerEvent is an event about a pod, or about a container; Path is its field path in the
// pod then.
type ContainerEvent struct {
	Path, Kind, Reason, Message string
	Annotations                 map[string]string // of the event, for programs
}

// ContainerEvent tells of something that happened to a pod or a container of it.
func (c *Cluster) ContainerEvent(pod *corev1.Pod, e ContainerEvent) {
	if isStatic(pod) {
		if m := c.mirrors.Of(pod); m != nil {
			pod = m
		}
	}
	c.recorder.Tell(events.OfPod(pod, e.Path), events.Notice{Kind: e.Kind, Reason: e.Reason, Message: e.Message, Annotations: e.Annotations})
}

// ClaimEvent tells of something that happened to a PersistentVolumeClaim.
func (c *Cluster) ClaimEvent(claim *corev1.PersistentVolumeClaim, kind, reason, message string) {
	c.recorder.Event(corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}, kind, reason, message)
}

// statusRefused tells of a pod whose status cannot be written, so that it is not as it is
// shown.
func (c *Cluster) statusRefused(pod *corev1.Pod, err error) {
	until := "until the next; have those webhooks and policies leave it alone that are for pods, or if it was none of these, tell those who make Fairlead: "
	if apierrors.IsForbidden(err) {
		until = "until it is let in, which is tried again; have those webhooks, policies and roles let nodes write it (patch pods/status): "
	}
	c.recorder.Event(events.OfPod(pod, ""), corev1.EventTypeWarning, "FailedStatusUpdate", "The API server refuses what the node says of the pod, so that its status is an older one "+until+err.Error())
}

// tokenRefused tells of a pod that keeps a token beyond the time when it should have another.
func (c *Cluster) tokenRefused(pod *corev1.Pod, err error) {
	c.recorder.Event(events.OfPod(pod, ""), corev1.EventTypeWarning, "FailedTokenRenewal", "The pod gets no new token of its service account, which is tried again, and API servers refuse the old one once its time is over; see whether the service account is there, and whether nodes may make tokens of it (create serviceaccounts/token): "+err.Error())
}

// warner tells of what keeps the cluster from knowing something of the node. The recorder is
// there by the time that it is called.
func (c *Cluster) warner(reason string) func(error) {
	return func(err error) {
		c.cfg.Log.Warn("the cluster does not know all of the node", "reason", reason, "error", err)
		if !pace.Away(err) {
			c.NodeEvent(corev1.EventTypeWarning, reason, err.Error())
		}
	}
}

// NodeEvent tells of something that happened to the node.
func (c *Cluster) NodeEvent(kind, reason, message string) {
	c.recorder.Event(events.OfNode(c.cfg.Registration.Name), kind, reason, message)
}

// NodeChanged has the node's status looked at now.
func (c *Cluster) NodeChanged() { c.status.Changed() }

// NotReady is what keeps the node from being ready until the cluster has all that it goes by. A
// node that was ready when it registered, as before a restart of its agent, has that already.
func (c *Cluster) NotReady() []string {
	why := c.storage.NotReady()
	if n := c.registered.Load(); why == "" || n != nil && isReady(n) {
		return nil
	}
	return []string{why}
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Node is the Node object as it was last heard of, or nil.
func (c *Cluster) Node() *corev1.Node {
	if n := c.status.Node(); n != nil {
		return n
	}
	return c.registered.Load()
}

// Objects are what pods refer to.
func (c *Cluster) Objects() *objects.Objects { return c.objects }

// Storage is the node's part in the storage of the cluster.
func (c *Cluster) Storage() *storage.Storage { return c.storage }

// Synced says that the pods have been read once, and how fresh they are.
func (c *Cluster) Synced() cluster.Status { return c.pods.Status() }
