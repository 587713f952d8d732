package launch

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
)

// opened is a console whose goroutines begin when it is told to.
func opened(t *testing.T) (c *Console, path string, begin func()) {
	t.Helper()
	gate := make(chan struct{})
	l := &Launcher{ConsoleDir: t.TempDir(), Go: func(f func()) {
		go func() {
			<-gate
			f()
		}()
	}}
	c, argv, ends, err := l.NewConsole([]string{monitorv1.ConsoleSocket}, monitorv1.WindowSize{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, fd := range ends[1:] { // the first two are one
		_ = unix.Close(fd)
	}
	return c, argv[0], func() { close(gate) }
}

func deliver(t *testing.T, path string, fd int) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := conn.WriteMsgUnix([]byte("/dev/ptmx"), unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
}

// A machine that is busy may have this side look long after the runtime has gone.
func TestTerminalIsTakenHoweverLate(t *testing.T) {
	c, path, begin := opened(t)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	deliver(t, path, int(f.Fd()))
	time.AfterFunc(1200*time.Millisecond, begin)
	fd, err := c.Terminal()
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
}

// Whether a runtime has delivered nothing is not a matter of time.
func TestTerminalThatIsNotDelivered(t *testing.T) {
	c, _, begin := opened(t)
	begin()
	if fd, err := c.Terminal(); err == nil {
		t.Errorf("got descriptor %d", fd)
	}
}
