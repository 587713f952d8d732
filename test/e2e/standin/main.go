// Command standin is the program in the images that stand in for upstream's
// where busybox and agnhost are not enough. What it does depends on its name:
//
//	pause        wait for a signal, and reap
//	nnp          print the effective user, as a program with the setuid bit
//	ipcmk -M N   make a System V shared memory segment of N bytes
//	sh           become busybox's shell, or bash where that would drop variables
//	nc -u H P    send the input to UDP port P of host H, and write what comes back
//	ipcs         list System V shared memory, as the kernel has it
//	pgrep NAME   list processes with NAME in their names
//	nginx [PORT] serve a page on port 80 or another; so does httpd
//	curl URL     write what the URL gives; of curl's flags, those that the specs use
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	var err error
	title, _, _ := strings.Cut(os.Args[0], master)
	switch name := filepath.Base(title); name {
	case "pause":
		pause()
	case "nnp":
		fmt.Printf("Effective uid: %d\n", os.Geteuid())
	case "ipcmk":
		err = makeSegment(os.Args[1:])
	case "ipcs":
		err = listSegments()
	case "pgrep":
		err = findProcesses(os.Args[1:])
	case "nginx", "httpd":
		err = serve(name, os.Args[1:])
	case "curl":
		err = get(os.Args[1:])
	case "sh":
		program := shell(os.Environ())
		err = fmt.Errorf("run %s: %w", program, unix.Exec(program, os.Args, os.Environ()))
	case "nc":
		err = ask(os.Args[1:], os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("this does nothing under the name %s", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGCHLD)
	for s := range signals {
		if s != unix.SIGCHLD {
			return
		}
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
}

func makeSegment(args []string) error {
	if len(args) != 2 || args[0] != "-M" {
		return errors.New("usage: ipcmk -M BYTES")
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o644)
	if err != nil {
		return err
	}
	fmt.Printf("Shared memory id: %d\n", id)
	return nil
}

func listSegments() error {
	list, err := os.ReadFile("/proc/sysvipc/shm")
	if err == nil {
		_, err = os.Stdout.Write(list)
	}
	return err
}

func findProcesses(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: pgrep NAME")
	}
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, file := range files {
		name, err := os.ReadFile(file)
		pid := filepath.Base(filepath.Dir(file))
		if err == nil && strings.Contains(string(name), args[0]) && pid != strconv.Itoa(os.Getpid()) {
			fmt.Println(pid)
		}
	}
	return nil
}

func get(args []string) error {
	flags := flag.NewFlagSet("curl", flag.ContinueOnError)
	for _, quiet := range []string{"g", "q", "s"} {
		flags.Bool(quiet, false, "as this always does")
	}
	limit := flags.Int("max-time", 0, "seconds that all of it may take")
	flags.IntVar(limit, "connect-timeout", 0, "the same, here")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client := http.Client{Timeout: time.Duration(*limit) * time.Second}
	resp, err := client.Get(flags.Arg(0))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// shell is the one to run. Specs look for what busybox's says of errors, and for
// variables that it does not pass on: those whose names are not a shell's.
func shell(environment []string) string {
	for _, e := range environment {
		if !shellName.MatchString(e) {
			return "/bin/bash"
		}
	}
	return "/bin/busybox"
}

// ask is as much of nc as the specs need; busybox's has no UDP.
func ask(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("nc", flag.ContinueOnError)
	wait := flags.Int("w", 1, "seconds without an answer after which it ends")
	udp := flags.Bool("u", false, "use UDP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !*udp || flags.NArg() != 2 {
		return errors.New("usage: nc -u [-w SECONDS] HOST PORT")
	}
	conn, err := net.Dial("udp", net.JoinHostPort(flags.Arg(0), flags.Arg(1)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.Copy(conn, in); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Duration(*wait) * time.Second)); err != nil {
		return err
	}
	answer := make([]byte, 64<<10)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	_, err = out.Write(answer[:n])
	return err
}
