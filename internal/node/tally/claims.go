package tally

import (
	"cmp"
	"io"
	"slices"

	"fairlead.run/internal/telemetry"
)

// Claim is a PersistentVolumeClaim of a pod, with what the file system of its volume has,
// in bytes and in inodes.
type Claim struct {
	Namespace, Name                string
	Capacity, Available, Used      int64
	Inodes, InodesFree, InodesUsed int64
}

func (c Claim) compare(o Claim) int {
	return cmp.Or(cmp.Compare(c.Namespace, o.Namespace), cmp.Compare(c.Name, o.Name))
}

// WriteClaims writes them in the text format of Prometheus. A claim that several pods have
// is there once.
func WriteClaims(to io.Writer, all []Claim) error {
	slices.SortFunc(all, Claim.compare)
	all = slices.CompactFunc(all, func(a, b Claim) bool { return a.compare(b) == 0 })
	var r telemetry.Registry
	for _, m := range []struct {
		name, help string
		of         func(Claim) int64
	}{
		{"capacity_bytes", "Capacity of the volume, in bytes.", func(c Claim) int64 { return c.Capacity }},
		{"available_bytes", "What is available of the volume, in bytes.", func(c Claim) int64 { return c.Available }},
		{"used_bytes", "What is used of the volume, in bytes.", func(c Claim) int64 { return c.Used }},
		{"inodes", "Inodes of the volume.", func(c Claim) int64 { return c.Inodes }},
		{"inodes_free", "Inodes of the volume that are free.", func(c Claim) int64 { return c.InodesFree }},
		{"inodes_used", "Inodes of the volume that are used.", func(c Claim) int64 { return c.InodesUsed }},
	} {
		r.Gauge("kubelet_volume_stats_"+m.name, m.help, []string{"namespace", "persistentvolumeclaim"}, func(tell func(float64, ...string)) {
			for _, c := range all {
				tell(float64(m.of(c)), c.Namespace, c.Name)
			}
		})
	}
	return r.Write(to)
}
