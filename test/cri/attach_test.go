package cri

import (
	"io"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func TestAttachToATerminal(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script(`echo ready; while read line; do echo "$line $(stty size)"; done`)
		cfg.Tty, cfg.Stdin = true, true
		c := s.Start(cfg)
		for _, want := range []string{"31 71", "32 72"} { // hanging up ends nothing
			c.Attach(true, func(stdin io.Writer, out func() string, resize chan<- remotecommand.TerminalSize) {
				var rows, cols uint16 = 31, 71
				if want == "32 72" {
					rows, cols = 32, 72
				}
				resize <- remotecommand.TerminalSize{Height: rows, Width: cols}
				node.Eventually(t, "the size "+want, func() bool {
					_, _ = io.WriteString(stdin, "size\n")
					return strings.Contains(out(), "size "+want)
				})
			})
		}
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("%+v", st)
		}
		s.Remove()
	})
}

// Standard input that is not "once" outlives the client that wrote to it.
func TestAttachAgain(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("while read line; do echo got $line; done; echo closed")
		cfg.Stdin = true
		c := s.Start(cfg)
		for _, word := range []string{"first", "second"} {
			c.Attach(false, func(stdin io.Writer, out func() string, _ chan<- remotecommand.TerminalSize) {
				_, _ = io.WriteString(stdin, word+"\n")
				node.Eventually(t, "the answer to "+word, func() bool { return strings.Contains(out(), "got "+word) })
			})
		}
		if log := c.Log(); strings.Contains(log, "closed") || !strings.Contains(log, "got first\ngot second") {
			t.Errorf("log %q", log)
		}
		s.Remove()
	})
}
