package bridge

import (
	"context"
	"slices"
	"testing"
	"time"

	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
	"fairlead.run/internal/pod"
)

func BenchmarkAttachDetach(b *testing.B) {
	networktest.NeedRoot(b)
	for name, ports := range map[string][]pod.PortMapping{
		"plain":    nil,
		"hostPort": {{Protocol: "tcp", HostPort: 18080, ContainerPort: 80}},
	} {
		b.Run(name, func(b *testing.B) { benchmark(b, ports) })
	}
}

// BenchmarkAttachOnly leaves the namespaces alone, whose removal holds the
// kernel's lock for links.
func BenchmarkAttachOnly(b *testing.B) {
	networktest.NeedRoot(b)
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	d, err := New(Config{Bridge: "flbench0", Table: "flbench"}, ledger)
	if err != nil {
		b.Fatal(err)
	}
	networktest.Start(b, d.Run)
	var attach []time.Duration
	for b.Loop() {
		b.StopTimer()
		p := networktest.NewPod(b, "p")
		b.StartTimer()
		start := time.Now()
		if _, err := d.Attach(context.Background(), p.Req); err != nil {
			b.Fatal(err)
		}
		attach = append(attach, time.Since(start))
	}
	b.ReportMetric(median(attach), "attach-p50-µs")
}

func benchmark(b *testing.B, ports []pod.PortMapping) {
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	d, err := New(Config{Bridge: "flbench0", Table: "flbench"}, ledger)
	if err != nil {
		b.Fatal(err)
	}
	networktest.Start(b, d.Run)
	ctx := context.Background()
	warm := networktest.NewPod(b, "warm")
	if _, err := d.Attach(ctx, warm.Req); err != nil {
		b.Fatal(err)
	}
	var attach, detach []time.Duration
	for b.Loop() {
		b.StopTimer()
		p := networktest.NewPod(b, "p", ports...)
		b.StartTimer()
		start := time.Now()
		if _, err := d.Attach(ctx, p.Req); err != nil {
			b.Fatal(err)
		}
		attached := time.Now()
		if err := d.Detach(ctx, p.Req.ID); err != nil {
			b.Fatal(err)
		}
		attach, detach = append(attach, attached.Sub(start)), append(detach, time.Since(attached))
		b.StopTimer()
		p.Drop()
		if len(ports) > 0 { // the next pod wants the same port
			networktest.Eventually(b, "release", func() bool { return len(d.entries()) == 1 })
		}
		b.StartTimer()
	}
	b.ReportMetric(median(attach), "attach-p50-µs")
	b.ReportMetric(median(detach), "detach-p50-µs")
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1000
}
