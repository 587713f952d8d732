package join

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/advert"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cluster/membership"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/handlers"
)

// How often the runtime is asked how it is, and which images it has.
const (
	runtimeEvery = 10 * time.Second
	imagesEvery  = time.Minute
	// runtimeAway is how long the node says what its runtime has said last while that does not
	// answer, as a kubelet does. A runtime that is only started anew is back by then, and the
	// cluster takes no pod of a node that is not ready for ready.
	runtimeAway = 30 * time.Second
)

// facts is what the node says of itself. What changes is asked of the runtime now and
// then, and not each time that somebody wants to know.
type facts struct {
	endpoint *endpoint.Endpoint
	info     corev1.NodeSystemInfo
	fixed    nodestatus.Facts
	away     time.Duration // see runtimeAway
	// warn tells of what is wrong, and changed that there is something to tell the cluster.
	warn    func(reason, message string)
	changed func()

	*latest
}

// latest is the runtime's last answers.
type latest struct {
	mu       sync.Mutex
	runtime  nodestatus.Runtime
	heard    time.Time // when it was said
	handlers []advert.Handler
	images   []corev1.ContainerImage
	unfit    string // why the runtime cannot be used, as it was told
}

func factsOf(cfg Config, has capacity.Node) (facts, error) {
	f := facts{endpoint: cfg.Endpoint, away: runtimeAway, latest: &latest{}}
	f.runtime.NotReady = []string{"the container runtime was not asked yet"}
	info, err := nodestatus.Machine("/", cfg.Endpoint.Name+"://"+cfg.Endpoint.Version)
	if err != nil {
		return f, err
	}
	f.info = info
	var ips []netip.Addr
	for _, text := range cfg.Node.IPs() {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return f, err
		}
		ips = append(ips, ip)
	}
	_, port, err := net.SplitHostPort(cfg.Address)
	if err != nil {
		return f, err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return f, err
	}
	f.fixed = nodestatus.Facts{
		Capacity: has.Capacity, Allocatable: has.Allocatable, Info: info, Port: int32(number), Addresses: nodestatus.Addresses(cfg.Node.Name, ips...),
		Declared: nodestatus.Declared, MaxImages: cfg.MaxImages,
	}
	return f, nil
}

// run asks the runtime until ctx ends.
func (f *facts) run(ctx context.Context) error {
	var asked time.Time
	for {
		f.ask(ctx, time.Since(asked) >= imagesEvery)
		if time.Since(asked) >= imagesEvery {
			asked = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(runtimeEvery):
		}
	}
}

func (f *facts) ask(ctx context.Context, images bool) {
	ctx, cancel := context.WithTimeout(ctx, runtimeEvery)
	defer cancel()
	is, err := f.endpoint.Identify(ctx) // after a restart it may be another one
	if errors.Is(err, errdefs.ErrPrecondition) {
		f.cannotUse(err)
		return
	}
	var answer *runtimeapi.StatusResponse
	if err == nil {
		answer, err = f.endpoint.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	}
	if err == nil || !f.lately() {
		f.set(nodestatus.FromRuntime(answer, err))
	}
	if err == nil {
		f.mu.Lock()
		f.heard, f.unfit = time.Now(), ""
		f.fixed.Info.ContainerRuntimeVersion = is.Name + "://" + is.Version
		f.mu.Unlock()
	}
	if set, err := handlers.List(ctx, f.endpoint.Runtime); err == nil {
		f.mu.Lock()
		f.handlers = set.Advert()
		f.mu.Unlock()
	}
	if !images {
		return
	}
	list, err := f.endpoint.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return // the last answer is better than none
	}
	var out []corev1.ContainerImage
	for _, i := range list.GetImages() {
		out = append(out, corev1.ContainerImage{Names: slices.Concat(i.GetRepoDigests(), i.GetRepoTags()), SizeBytes: int64(i.GetSize())})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images = out
}

// lately says that the runtime has answered a moment ago.
func (f *facts) lately() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.heard.IsZero() && time.Since(f.heard) < f.away
}

// set takes an answer of the runtime.
func (f *facts) set(is nodestatus.Runtime) {
	f.mu.Lock()
	changed := !slices.Equal(f.runtime.NotReady, is.NotReady)
	f.runtime = is
	f.mu.Unlock()
	if changed {
		f.changed()
	}
}

// cannotUse has the node not ready until a runtime answers that can be used. Nothing else ends:
// what the one before has started may run on, and come back with it.
func (f *facts) cannotUse(err error) {
	f.set(nodestatus.Incompatible(err))
	f.mu.Lock()
	told := f.unfit == err.Error()
	f.unfit = err.Error()
	f.mu.Unlock()
	if !told {
		f.warn("IncompatibleRuntime", "No pod can be started, changed or ended before a container runtime serves the socket that can be used: "+err.Error())
	}
}

// now is what there is to say.
func (f *facts) now() membership.Said {
	f.mu.Lock()
	defer f.mu.Unlock()
	said := membership.Said{Facts: f.fixed, Handlers: f.handlers}
	said.Runtime, said.Images = f.runtime, f.images
	return said
}

// said adds what the node runs short of, and whether it shuts down.
func (n *Node) said(context.Context) membership.Said {
	said := n.facts.now()
	said.Volumes = n.inUse()
	said.Capacity, said.Allocatable = n.withDevices(said.Capacity, said.Allocatable)
	for _, c := range n.keeper.Pressure() {
		switch c {
		case corev1.NodeMemoryPressure:
			said.Pressure.Memory = true
		case corev1.NodeDiskPressure:
			said.Pressure.Disk = true
		case corev1.NodePIDPressure:
			said.Pressure.PIDs = true
		}
	}
	said.NotReady = slices.Concat(said.NotReady, n.keeper.NotReady(), n.cluster.NotReady())
	return said
}

// status is the first one of a node that is new.
func (n *Node) status() corev1.NodeStatus {
	f := n.facts.now().Facts
	f.NotReady = append(f.NotReady, n.cluster.NotReady()...)
	return nodestatus.Of(f, nil, time.Now())
}
