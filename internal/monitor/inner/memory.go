package inner

import (
	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/monitor/record"
)

// joinLedger puts a container on the books of those that may be killed for
// want of memory, before there is anything to kill, and records it.
func (in *Inner) joinLedger(p *process, path string) error {
	elsewhere := in.kills.Join(p.id, path)
	return p.change(func(r *record.Process) {
		r.Spec.Cgroup, r.KilledElsewhere = path, elsewhere
	})
}

// rejoinLedger does so again for a container that is known from its record.
func (in *Inner) rejoinLedger(p *process) {
	if p.rec.State != monitorv1.Exited {
		in.kills.Rejoin(p.id, p.rec.Spec.Cgroup, p.rec.KilledElsewhere)
	}
}

// watchMemory is called when the container's process is known. Where its start
// did not say in which cgroup it would be, it is asked now.
func (in *Inner) watchMemory(p *process) error {
	p.mu.Lock()
	kind, path, cgroups := p.rec.Spec.Kind, p.rec.Spec.Cgroup, p.rec.Cgroups
	p.mu.Unlock()
	if kind != monitorv1.KindContainer {
		return nil
	}
	if path == "" {
		if err := in.joinLedger(p, in.kills.PathIn(cgroups)); err != nil {
			return err
		}
	}
	in.kills.Watch(p.id, cgroups)
	return nil
}

// settleMemory finds out whether a process of the container that has ended was
// killed for want of memory. Asked again for one that it knows of, it finds the
// same.
func (in *Inner) settleMemory(p *process) {
	p.mu.Lock()
	exit, sandbox := *p.rec.Exit, p.rec.Spec.Sandbox
	open := p.rec.State == monitorv1.Draining && p.rec.Spec.Kind == monitorv1.KindContainer
	p.mu.Unlock()
	if !open {
		return
	}
	killed := exit.Signal == int(unix.SIGKILL) || exit.Code == 128+int(unix.SIGKILL) || exit.Lost
	v := in.kills.Settle(p.id, killed)
	v.OOMKilled = v.OOMKilled || killed && in.kills.Killed(sandbox)
	if !v.OOMKilled {
		return
	}
	// The others first: cut off in between, this one's is still found open.
	for _, id := range v.Others {
		other, err := in.table.find(id)
		if err != nil {
			continue // forgotten since
		}
		if err := other.noteElsewhere(v.Elsewhere); err != nil {
			in.cfg.Log.Error("kill of a neighbour not recorded", "id", id, "error", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	exit.OOMKilled = true
	p.rec.Exit = &exit // publish records it
}

// noteElsewhere keeps what the ledger has found for others. What is starting
// writes it with its next step, and who is about to be forgotten needs it no
// more.
func (p *process) noteElsewhere(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rec.KilledElsewhere = n
	if p.rec.State != monitorv1.Running && p.rec.State != monitorv1.Draining {
		return nil
	}
	return p.save()
}
