package daemon

import (
	"context"
	"fmt"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/audit"
	"fairlead.run/internal/checkpoint"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/rootfs"
	"fairlead.run/internal/runtime/oci"
	"fairlead.run/internal/sandbox"
	"fairlead.run/internal/selinux"
	bundles "fairlead.run/internal/spec/keeper"
)

// keepers are the drivers that an audit looks at, beside those in parts.
type keepers struct {
	sandboxes *sandbox.Driver
	roots     *rootfs.Roots
	labels    *selinux.Labels
	bundles   bundles.Keeper
	captures  checkpoint.Keeper
	handlers  oci.Keeper
}

// auditor looks at the parts in the light of the core's records.
func (p *parts) auditor(core audit.Core, verifyContent bool) *audit.Auditor {
	images := coreImages{p.images}
	lower := func(ctx context.Context, c *pod.Container, image string) ([]string, error) {
		img, err := images.Use(ctx, image, c.ID)
		return img.Lower, err
	}
	label := func(r *pod.Record, c *pod.Container) (string, error) {
		h, err := p.handlers.Get(r.Handler) // what it can do has to be known
		if err != nil {
			return "", err
		}
		l, err := p.keepers.labels.Container(r, c, h.Info())
		return l.Mount, err
	}
	return audit.New(core, []audit.Part{
		{Name: "records", Keeper: p.records},
		{Name: "processes and runtimes", Keeper: p.keepers.handlers},
		{Name: "sandboxes", Keeper: p.keepers.sandboxes},
		{Name: "the network", Keeper: p.network},
		{Name: "root file systems", Keeper: rootfs.Keeper{Roots: p.keepers.roots, Lower: lower, Label: label}},
		{Name: "bundles", Keeper: p.keepers.bundles},
		{Name: "checkpoints", Keeper: p.keepers.captures},
		{Name: "images", Keeper: p.images.Keeper(verifyContent)},
	})
}

func (d *Daemon) auditor(verifyContent bool) *audit.Auditor {
	return d.parts.auditor(d.core, verifyContent)
}

// Fsck implements adminv1.Server.
func (a admin) Fsck(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.FsckRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return fmt.Errorf("audit: read the request: %w (%w)", err, errdefs.ErrInvalidArgument)
	}
	reply, err := fsck(ctx, a.auditor(req.VerifyContent), req.Repair)
	if err != nil {
		return err
	}
	return adminv1.SendJSON(s, reply)
}

// fsck looks, and repairs if it is asked to.
func fsck(ctx context.Context, a *audit.Auditor, repair bool) (adminv1.FsckReply, error) {
	look := a.Look
	if repair {
		look = a.Repair
	}
	report, err := look(ctx)
	if err != nil {
		return adminv1.FsckReply{}, err
	}
	reply := adminv1.FsckReply{Findings: []adminv1.Finding{}}
	for i := range report.Findings {
		reply.Findings = append(reply.Findings, adminFinding(&report.Findings[i]))
	}
	for _, err := range report.Blind {
		reply.Blind = append(reply.Blind, err.Error())
	}
	for _, id := range report.Busy {
		reply.Busy = append(reply.Busy, string(id))
	}
	return reply, nil
}

func adminFinding(o *audit.Outcome) adminv1.Finding {
	f := adminv1.Finding{
		Code: string(o.Code()), Object: o.Thing.Name, Owner: o.Thing.Owner,
		Problem: o.Means, Action: o.Action, Repairable: o.Finding.Repair, Repaired: o.Repaired,
	}
	if o.Pod != nil {
		m := o.Pod.Config.Metadata
		f.Pod, f.PodID = m.Namespace+"/"+m.Name, string(o.Pod.ID)
	}
	if o.Err != nil {
		f.Error = o.Err.Error()
	}
	return f
}
