package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/daemon"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/localnode"
	"fairlead.run/internal/node/machine"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/gather"
	"fairlead.run/internal/threads"
)

// defaultManifests is where the pods of a machine are written.
const defaultManifests = "/etc/fairlead/manifests"

func (a *app) upCommand() *cobra.Command {
	f := upFlags{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Keep the pods of a folder of manifests running",
		Long: "Keep the pods of this machine as a folder of manifests wants them: start them, restart what ends, and\n" +
			"follow each change of the files. The runtime runs within this process, unless a daemon serves already.\n\n" +
			"A signal ends the command and not the pods: the next fairlead up takes them over. To end pods, take their\n" +
			"manifests away: by hand, or with fairlead delete. A file that is broken keeps its last good version.",
		Example: "  fairlead up --manifests ./pods\n  fairlead up --manifests - < pods.yaml\n  fairlead apply -f web.yaml\n  fairlead get pods",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.stock.check(cmd); err != nil {
				return err
			}
			return a.up(cmd.Context(), &f)
		},
	}
	cmd.Flags().StringVar(&f.manifests, "manifests", defaultManifests, "folder of manifests, which is made if it was never there, or - for standard input, which is read once")
	f.address.add(cmd)
	f.stock.add(cmd)
	f.room.add(cmd)
	return cmd
}

// upFlags are the settings of a machine.
type upFlags struct {
	manifests string
	address   addressFlags
	stock     stockFlags
	room      roomFlags
}

func (a *app) up(ctx context.Context, f *upFlags) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can run pods: %w", errdefs.ErrPrecondition)
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	release, err := machine.Lock(cfg.State)
	if err != nil {
		return err
	}
	defer release()
	spare(a.err, ownScore, sparedScore)
	manifests, err := a.manifests(f)
	if err != nil {
		return err
	}
	return a.with(ctx, func(s *session) error {
		if s.own != nil {
			s.own.last(ctx, s.Endpoint)
		}
		if err := threads.Reserve(agentThreads); err != nil {
			return fmt.Errorf("start the node agent: %w", err)
		}
		log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
		settings, err := f.room.settings(s.cfg)
		if err != nil {
			return err
		}
		if settings.Cgroups.Root == "" { // beside a kubelet's, which are at the top
			settings.Cgroups.Root = "/" + daemon.PodCgroup(s.cfg.State)
		}
		node := localnode.Gather(s.cfg.Root)
		node.Swap.Manifests = true
		if err := f.room.shareSwap(&node); err != nil {
			return err
		}
		m, err := machine.New(ctx, machine.Config{
			Endpoint: s.Endpoint, Node: node, Manifests: manifests, Stock: f.stock.Settings, Root: s.cfg.Root, State: s.cfg.State, Resources: settings,
			Watcher: newHerald(a.err), Log: log,
		})
		if err != nil {
			return err
		}
		a.note("the pods of %s are kept; end with Ctrl-C, and they go on", described(manifests))
		return m.Run(ctx)
	})
}

// manifests are the sources that the flags name.
func (a *app) manifests(f *upFlags) (out gather.Config, err error) {
	if out.Address, err = f.address.address(); err != nil {
		return out, err
	}
	if f.manifests == "-" {
		out.Input = a.in
		return out, nil
	}
	out.Folder, err = absolute(f.manifests)
	return out, err
}

// described names sources for people. An address may hold a password.
func described(c gather.Config) string {
	text := c.Folder
	if c.Input != nil {
		text = "standard input"
	}
	if c.URL != "" {
		text += " and of --manifest-url"
	}
	return text
}

// herald tells people what a machine does: a line for each thing.
type herald struct {
	mu   sync.Mutex
	out  io.Writer
	last map[string]string // the line about each pod
	told map[string]string // the last event of each pod and reason since that line
}

func newHerald(out io.Writer) *herald {
	return &herald{out: out, last: map[string]string{}, told: map[string]string{}}
}

func (h *herald) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = fmt.Fprintln(h.out, oneLine(fmt.Sprintf(format, args...)))
}

// Changed implements machine.Watcher.
func (h *herald) Changed(p *corev1.Pod, s corev1.PodStatus, why string) {
	text := "pod " + podName(p.Namespace, p.Name) + ": " + describeStatus(p, s, why)
	h.mu.Lock()
	// While something is tried again nobody says why it is not done: that is nothing new.
	before := h.last[p.Namespace+"/"+p.Name]
	known := strings.HasPrefix(before, text)
	if !known {
		h.last[p.Namespace+"/"+p.Name] = text
	}
	if !known && !strings.HasPrefix(text, before) {
		h.forget(p) // what happens again now is new
	}
	h.mu.Unlock()
	if !known {
		h.say("%s", text)
	}
}

// Event implements machine.Watcher. What is as it should be shows in the status, and what is
// tried again and fails as before was said.
func (h *herald) Event(p *corev1.Pod, kind, reason, message string) {
	if kind == corev1.EventTypeNormal && reason != "RuntimeClass" && reason != "Killing" {
		return
	}
	of := p.Namespace + "/" + p.Name + "/" + reason
	h.mu.Lock()
	known := h.told[of] == message && kind != corev1.EventTypeNormal
	h.told[of] = message
	h.mu.Unlock()
	if !known {
		h.say("pod %s: %s: %s", podName(p.Namespace, p.Name), reason, message)
	}
}

// forget has events of a pod told again. The caller holds mu.
func (h *herald) forget(p *corev1.Pod) {
	maps.DeleteFunc(h.told, func(of, _ string) bool { return strings.HasPrefix(of, p.Namespace+"/"+p.Name+"/") })
}

// Gone implements machine.Watcher.
func (h *herald) Gone(p *corev1.Pod) {
	h.mu.Lock()
	delete(h.last, p.Namespace+"/"+p.Name)
	h.forget(p)
	h.mu.Unlock()
	h.say("pod %s: removed", podName(p.Namespace, p.Name))
}

// Problems implements machine.Watcher.
func (h *herald) Problems(list []source.Problem) {
	if len(list) == 0 {
		h.say("all manifests are in order")
	}
	for _, p := range list {
		for line := range strings.Lines(p.Err.Error()) {
			h.say("manifest: %s", strings.TrimRight(line, "\n"))
		}
	}
}

// Note implements machine.Watcher.
func (h *herald) Note(text string) { h.say("manifest: %s", text) }

// describeStatus is the state of a pod in a few words. What its agent says of why it is
// not ready says more than its status.
func describeStatus(p *corev1.Pod, s corev1.PodStatus, reason string) string {
	ready, total, why := readiness(p, s)
	why = cmp.Or(reason, why)
	text := string(s.Phase)
	if s.Phase == corev1.PodRunning {
		text += fmt.Sprintf(", %d of %d ready", ready, total)
	}
	if s.Reason != "" {
		text += " (" + s.Reason + ")"
	}
	if s.Message != "" {
		why = s.Message
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// readiness counts the containers that are ready, of those that run on, and says what
// the first one waits for that does not run.
func readiness(p *corev1.Pod, s corev1.PodStatus) (ready, total int, why string) {
	list := slices.Clone(s.ContainerStatuses)
	for _, c := range s.InitContainerStatuses {
		if sidecar(p, c.Name) {
			list = append(list, c)
		} else if why == "" {
			why = waiting(c)
		}
	}
	for _, c := range list {
		total++
		if c.Ready {
			ready++
		}
		if why == "" {
			why = waiting(c)
		}
	}
	return ready, total, why
}

func sidecar(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// waiting says what a container waits for, if that is not its turn.
func waiting(c corev1.ContainerStatus) string {
	w := c.State.Waiting
	if w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
		return ""
	}
	text := "container " + c.Name + ": " + w.Reason
	if w.Message != "" {
		text += ": " + w.Message
	}
	return text
}
