package shimcmd

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// terminal is one between the monitor, which has its master end, and this process,
// whose controlling terminal it is: so a change of its size arrives as SIGWINCH,
// and its end as SIGHUP. It passes on bytes as they are; the one that lines are
// edited on is the container's own.
type terminal struct {
	slave *os.File
}

// openTerminal makes a terminal and delivers its master end at a socket, as
// runtimes do.
func openTerminal(socket string) (*terminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := setRaw(int(slave.Fd())); err != nil {
		return nil, fmt.Errorf("set up a terminal: %w", err)
	}
	return &terminal{slave}, deliver(socket, master)
}

// setRaw makes the terminal pass on bytes as they are, and this process's.
func setRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.TIOCSCTTY, 0)
}

func deliver(socket string, master *os.File) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("deliver the terminal: %w", err)
	}
	defer conn.Close()
	_, _, err = conn.WriteMsgUnix([]byte(master.Name()), unix.UnixRights(int(master.Fd())), nil)
	if err != nil {
		return fmt.Errorf("deliver the terminal: %w", err)
	}
	return nil
}

// size is 0 where nobody has set one.
func (t *terminal) size() (width, height uint16) {
	w, err := unix.IoctlGetWinsize(int(t.slave.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return w.Col, w.Row
}
