package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/foreground"
	"fairlead.run/internal/node/logs"
)

// colours of prefixes, easy to tell apart on dark and light ground.
var colours = []string{"36", "33", "32", "35", "34", "96", "93", "92", "95", "94"}

// console shows what a run does: output of containers on standard output,
// everything else on standard error.
type console struct {
	mu         sync.Mutex
	out, err   io.Writer
	colour     bool
	timestamps bool
	width      int
	palette    map[string]string
	last       map[string]string // the line shown for each pod
	begun, end bool
}

func newConsole(a *app, f runFlags) *console {
	_, tty := terminal(a.out)
	return &console{
		out: a.out, err: a.err, colour: tty && os.Getenv("NO_COLOR") == "", timestamps: f.timestamps,
		palette: map[string]string{}, last: map[string]string{},
	}
}

// expect makes room for a pod's names in front of lines.
func (c *console) expect(p *corev1.Pod) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, ct := range list {
			name := prefix(p.Name, ct.Name)
			c.width = max(c.width, len(name))
			c.palette[p.Name] = colours[len(c.palette)%len(colours)]
		}
	}
}

func prefix(pod, container string) string { return pod + "/" + container }

// started is called once all pods run: from then on changes are worth a line.
func (c *console) started() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = true
}

// leaving is called before pods are removed on purpose.
func (c *console) leaving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = true
}

// Note implements foreground.Observer.
func (c *console) Note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintln(c.err, text)
}

// Changed implements foreground.Observer.
func (c *console) Changed(s foreground.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := s.Namespace + "/" + s.Name
	text := "pod " + podName(s.Namespace, s.Name) + ": " + string(s.Phase)
	if s.Phase == foreground.Running && s.Ready < s.Total {
		text += fmt.Sprintf(", %d of %d ready", s.Ready, s.Total)
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	if text != c.last[key] && !c.end && (c.begun || s.Message != "") {
		_, _ = fmt.Fprintln(c.err, text)
	}
	c.last[key] = text
}

// Line implements foreground.Observer.
func (c *console) Line(_, pod, container string, l logs.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := prefix(pod, container)
	name += strings.Repeat(" ", max(0, c.width-len(name)))
	if c.colour {
		name = "\x1b[" + c.palette[pod] + "m" + name + "\x1b[0m"
	}
	stamp := ""
	if c.timestamps {
		stamp = l.Time.Format(time.RFC3339Nano) + " "
	}
	_, _ = fmt.Fprintf(c.out, "%s | %s%s\n", name, stamp, l.Text)
}
