package webhook_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// apart starts what begin starts on the last core of the machine, and has this process
// use the others until the benchmark ends, so that what a client waits for is not its
// own work. A machine with one core has both on it.
func apart(b *testing.B, begin func() error) error {
	var all, last, others unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	if all.Count() < 2 {
		b.Log("there is one core, on which client and server compete")
		return begin()
	}
	others = all
	for cpu := len(all)*64 - 1; last.Count() == 0; cpu-- {
		if all.IsSet(cpu) {
			last.Set(cpu)
			others.Clear(cpu)
		}
	}
	// A process begins on the cores of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		return err
	}
	err := begin()
	ours(b, &others)
	procs := runtime.GOMAXPROCS(others.Count())
	b.Cleanup(func() {
		ours(b, &all)
		runtime.GOMAXPROCS(procs)
	})
	return err
}

// ours sets the cores of all threads of this process.
func ours(b *testing.B, cores *unix.CPUSet) {
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		b.Fatal(err)
	}
	for _, task := range tasks {
		id, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.SchedSetaffinity(id, cores); err != nil && err != unix.ESRCH {
			b.Fatal(err)
		}
	}
}

// machine is what all cores have done since it started, in seconds.
type machine struct {
	busy, stolen, ours float64
	server             time.Duration // what that has used of it
}

// machineNow reads /proc/stat.
func machineNow(b *testing.B, server time.Duration) machine {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		b.Fatal(err)
	}
	var user, nice, system, idle, wait, irq, soft, steal float64
	line, _, _ := strings.Cut(string(text), "\n")
	if _, err := fmt.Sscanf(line, "cpu %f %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal); err != nil {
		b.Fatal(err)
	}
	var client unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &client); err != nil {
		b.Fatal(err)
	}
	own := server + time.Duration(client.Utime.Nano()+client.Stime.Nano())
	return machine{busy: (user + nice + system + irq + soft) / 100, stolen: steal / 100, ours: own.Seconds(), server: server}
}

// report tells how much of the machine others had, in percent of all its cores.
func (m machine) report(b *testing.B, since machine, took time.Duration) {
	whole := took.Seconds() * float64(runtime.NumCPU()) / 100
	b.ReportMetric(max(0, (m.busy-since.busy)-(m.ours-since.ours))/whole, "others-%")
	b.ReportMetric((m.stolen-since.stolen)/whole, "stolen-%")
}
