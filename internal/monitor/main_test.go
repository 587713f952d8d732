package monitor_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/monitor/pause"
)

// TestMain makes the test binary the monitor, the pause program, a small OCI
// runtime and what runs in containers, by its first argument; the testing
// package's own all begin with "-test.".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(program(os.Args[1:]))
	}
	// A program with the race detector sleeps for a second when it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	flag.Parse()
	if os.Getenv("FAIRLEAD_TEST_MACHINE") == "" { // one of their own is slow
		// They mostly wait.
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func program(args []string) int {
	switch args[0] {
	case "pause":
		return pause.Main()
	case "runtime":
		return runtimeMain(args[1:])
	case "stranger":
		return strangerMain(args[1])
	case "print":
		return printMain(args[1:])
	case "count":
		return countMain(args[1])
	case "flood":
		return floodMain(args[1])
	case "sizes":
		return sizesMain()
	case "large":
		return largeMain(args[1:])
	case "line":
		return lineMain(args[1:])
	}
	return monitor.Main("test", args)
}

// runtimeMain is "runtime PIDFILE CONSOLE PROGRAM ARG...": it starts the
// program in a session of its own, with its own stdio or a new terminal that
// it delivers to the socket CONSOLE, and leaves it.
func runtimeMain(args []string) int {
	pidFile, console, argv := args[0], args[1], args[2:]
	// As with real runtimes, the container does not have the runtime's environment.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FAIRLEAD_MONITOR_COMMAND=") })
	attr := &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if console != "" {
		slave, err := deliverTerminal(console)
		if err != nil {
			fmt.Fprintln(os.Stderr, "deliver terminal:", err)
			return 1
		}
		attr.Files = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		attr.Sys.Setctty, attr.Sys.Ctty = true, 0
	}
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start container:", err)
		return 1
	}
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return 1
	}
	return 0
}

func deliverTerminal(socket string) (int, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	slave, err := unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return -1, err
	}
	return slave, unix.Sendmsg(fd, []byte("terminal"), unix.UnixRights(master), nil, 0)
}

// strangerMain is a caller that is not root.
func strangerMain(stateDir string) int {
	c, err := client.Ensure(context.Background(), client.Options{StateDir: stateDir})
	if err == nil {
		_, err = c.Info(context.Background())
	}
	fmt.Println(err)
	return 0
}

// printMain is "print NAME UNTIL [BATCH]": numbered lines of changing lengths on
// both streams, and at the end how many there were. UNTIL is seconds, or a file
// to wait for. After BATCH lines it pauses for a millisecond.
func printMain(args []string) int {
	batch := 200
	if len(args) > 2 {
		batch, _ = strconv.Atoi(args[2])
	}
	begun := time.Now()
	over := func() bool {
		if seconds, err := strconv.ParseFloat(args[1], 64); err == nil {
			return time.Since(begun) > time.Duration(seconds*float64(time.Second))
		}
		_, err := os.Stat(args[1])
		return err == nil
	}
	filler := strings.Repeat("0123456789", 30)
	n := 0
	for ; ; n++ {
		if n%batch == 0 && n > 0 {
			time.Sleep(time.Millisecond)
			if n > 100 && over() {
				break
			}
		}
		to := os.Stdout
		if n%7 == 0 {
			to = os.Stderr
		}
		if _, err := fmt.Fprintf(to, "%s %d %s.\n", args[0], n, filler[:n%300]); err != nil {
			return 3
		}
	}
	fmt.Printf("%s total %d\n", args[0], n)
	return 0
}

// countMain is "count N": the numbers below N, each on a line.
func countMain(below string) int {
	n, err := strconv.Atoi(below)
	if err != nil {
		return 2
	}
	var block []byte
	for i := range n {
		block = append(strconv.AppendInt(block, int64(i), 10), '\n')
		if len(block) < 4000 && i < n-1 {
			continue
		}
		if _, err := os.Stdout.Write(block); err != nil {
			return 3
		}
		block = block[:0]
	}
	return 0
}

// floodMain is "flood UNTIL": numbered lines as fast as they are taken until there
// is such a file, and at the end how many there were.
func floodMain(until string) int {
	block := make([]byte, 0, 64<<10)
	for i := 0; ; {
		for block = block[:0]; len(block) < 60<<10; i++ {
			block = floodLine(block, i)
		}
		if _, err := os.Stdout.Write(block); err != nil {
			return 3
		}
		if _, err := os.Stat(until); err == nil {
			fmt.Println("total", i)
			return 0
		}
	}
}

// floodLine appends line i of a flood, which has 100 bytes with its newline.
func floodLine(to []byte, i int) []byte {
	const filler = " 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
	begin := len(to)
	to = strconv.AppendInt(to, int64(i), 10)
	return append(append(to, filler[:99-(len(to)-begin)]...), '\n')
}

// lineBlock is what lineMain writes again and again, after a number of 16 digits.
var lineBlock = strings.Repeat("0123456789abcdef", 4<<10-1)

// lineMain is "line CHUNKS MIB": as many chunks of so many MiB without a newline,
// and then one. After each chunk it waits for a line of input.
func lineMain(args []string) int {
	chunks, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	mib, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	for i := range chunks * mib * 16 {
		if _, err := fmt.Fprintf(os.Stdout, "%016d%s", i, lineBlock); err != nil {
			return 3
		}
		if (i+1)%(mib*16) > 0 {
			continue
		}
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return 4
		}
	}
	_, _ = os.Stdout.WriteString("\n")
	return 0
}

// sizesMain prints the size of its terminal each time that it changes, and ends
// with code 4 after a line of input.
func sizesMain() int {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	fmt.Println("up")
	go func() {
		for range changes {
			if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
				fmt.Println(size.Row, size.Col)
			}
		}
	}()
	if _, err := os.Stdin.Read(make([]byte, 100)); err != nil {
		return 3
	}
	return 4
}

// largeMain is "large N": the beginning of a line, a while later the rest of it
// in one large write, and so on.
func largeMain(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	rest := strings.Repeat("x", 1<<20) + "\n"
	for range n {
		_, _ = os.Stdout.WriteString("begin")
		time.Sleep(50 * time.Millisecond)
		if _, err := os.Stdout.WriteString(rest); err != nil {
			return 3
		}
	}
	return 0
}
