// Command agent is what a guest runs in which there is a node: it prepares the file
// systems, and takes the test's orders to start and end programs and to read and
// write files. Whoever reaches its address may give orders, so that has to be one
// of a network of the test's own.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/test/e2e/machine"
)

func main() {
	listen := flag.String("listen", "", "TCP address to take orders at")
	disk := flag.String("disk", "", "folder to make on a disk; what is written to /var/lib and /var/log is there, too")
	memory := flag.String("memory", "", "folder to make in memory")
	patience := flag.Duration("patience", 10*time.Minute, "how long a program may take to end")
	flag.Parse()
	fmt.Fprintln(os.Stderr, "agent:", run(*listen, *disk, *memory, *patience))
	os.Exit(1)
}

// run returns only on failure.
func run(listen, disk, memory string, patience time.Duration) error {
	if err := os.MkdirAll(memory, 0o755); err != nil {
		return err
	}
	for source, target := range map[string]string{"varlib": "/var/lib", "varlog": "/var/log"} {
		source = filepath.Join(disk, source)
		if err := os.MkdirAll(source, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return machine.Serve(l, machine.Local(patience))
}
