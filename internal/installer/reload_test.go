package installer

import (
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/restart"
)

// After SIGHUP, CRI-O has no monitor for handlers that do not name one, and starts no
// container on them.
func TestSighupThatWouldBreakHandlers(t *testing.T) {
	const watched = "[crio.runtime.runtimes.crun]\nmonitor_path = \"/usr/bin/conmon\"\n"
	ours := func(kind string) *job {
		return &job{crio: []crio.Handler{{Name: "kata", CRIOHandler: payload.CRIOHandler{RuntimeType: kind}}}}
	}
	for name, c := range map[string]struct {
		method, config string
		served         []string
		job            *job
		want           string
	}{
		"a shim beside what is monitored":   {restart.BySighup, watched, []string{"crun"}, ours("vm"), ""},
		"a program":                         {restart.BySighup, watched, []string{"crun"}, ours("oci"), "kata"},
		"a program, by systemd":             {restart.Auto, "", []string{"crun"}, ours("oci"), ""},
		"a shim beside what is not":         {restart.BySighup, "", []string{"crun"}, ours("vm"), "crun"},
		"an upgrade of a program to a shim": {restart.BySighup, watched + "[crio.runtime.runtimes.old]\n", []string{"crun", "old"}, ours("vm"), ""},
		"a removal":                         {restart.BySighup, watched + "[crio.runtime.runtimes.old]\n", []string{"crun", "old"}, &job{}, ""},
		"a removal beside what is not":      {restart.BySighup, "[crio.runtime.runtimes.old]\n", []string{"crun", "old"}, &job{}, "crun"},
	} {
		n := newNode(t, 2)
		n.write("etc/systemd/system/crio.service", "")
		n.write("etc/crio/crio.conf", c.config)
		i, err := New(Options{Root: n.root, Distribution: "crio", Restart: c.method}, n.installer().log)
		if err != nil {
			t.Fatal(err)
		}
		err = i.reloadable(cri.Seen{Handlers: c.served}, []*install{{job: c.job, record: &journal.Record{Now: &journal.Release{Handlers: []string{"old"}}}}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), "no container on "+c.want+",") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
