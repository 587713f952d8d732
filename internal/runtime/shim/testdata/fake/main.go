// Command fake is a containerd shim that does wrong what its name says.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		serve(os.Args[2])
		return
	}
	if !slices.Contains(os.Args, "start") {
		return
	}
	switch name := filepath.Base(os.Args[0]); name {
	case "exits":
		fmt.Fprintln(os.Stderr, "no such luck")
		os.Exit(1)
	case "floods":
		line := strings.Repeat("all work and no play ", 1000)
		for range 1 << 30 / len(line) {
			fmt.Fprintln(os.Stderr, line)
		}
		os.Exit(1)
	case "told":
		keep(filepath.Dir(os.Args[0]))
		os.Exit(1)
	case "hangs":
		time.Sleep(time.Hour)
	case "babbles":
		fmt.Println("here I am, somewhere")
	case "newer":
		fmt.Println(`{"version": 9, "address": "unix:///run/x", "protocol": "ttrpc"}`)
	case "grpc":
		fmt.Println(`{"version": 3, "address": "unix:///run/x", "protocol": "grpc"}`)
	default:
		boot(name)
	}
}

// keep writes down what it was told, beside the program: once in the new way and
// once in the old one.
func keep(folder string) {
	f, err := os.CreateTemp(folder, "input-")
	if err != nil {
		panic(err)
	}
	if _, err := io.Copy(f, os.Stdin); err != nil {
		panic(err)
	}
}

// boot leaves a process that listens.
func boot(name string) {
	path, err := filepath.Abs("fake.sock") // in the bundle
	if err != nil {
		panic(err)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c := &exec.Cmd{Path: self, Args: []string{name, "serve", path}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := c.Start(); err != nil {
		panic(err)
	}
	for {
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("unix://" + path)
}

func serve(path string) {
	l, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go answer(conn)
	}
}

func answer(conn net.Conn) {
	if n, _ := conn.Read(make([]byte, 4096)); n == 0 {
		return // it was only to see whether this listens
	}
	switch filepath.Base(os.Args[0]) {
	case "deaf":
		_, _ = io.Copy(io.Discard, conn)
	case "garbles":
		_, _ = conn.Write([]byte(strings.Repeat("\x00\x00\x00\x05garbage", 10)))
	case "huge":
		_, _ = conn.Write([]byte(strings.Repeat("\xff", 1000)))
	case "dies":
		os.Exit(3)
	}
}
