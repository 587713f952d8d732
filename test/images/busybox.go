package images

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// BusyboxPath is where Debian's package busybox-static puts its program.
const BusyboxPath = "/bin/busybox"

// applets get a link each. They are what tests call; busybox itself runs the
// others by name ("busybox NAME").
const applets = "[ arping awk base64 basename cat chgrp chmod chown chroot clear cmp cp cut date dd df dirname dmesg du " +
	"echo env expr false find free fuser getopt grep groups gunzip gzip head hexdump hostname httpd id ifconfig ip ipcs " +
	"kill killall ln logger ls md5sum mkdir mkfifo mknod mktemp mount mountpoint mv nc nice nohup nproc nslookup od " +
	"pgrep pidof ping printenv printf ps pwd readlink realpath renice reset rm rmdir route sed seq setsid sh sha256sum " +
	"sleep sort stat strings stty su sync sysctl tail tar tee telnet test time timeout top touch tr traceroute true " +
	"tty ulimit umount uname uniq uptime usleep vi watch wc wget which whoami xargs yes"

// Busybox is a layer with a static busybox and links for its usual applets,
// the folders that programs expect, and users root and nobody. It fails where
// busybox-static is not installed.
func Busybox() (Layer, error) {
	program, err := os.ReadFile(BusyboxPath)
	if err != nil {
		return Layer{}, fmt.Errorf("busybox-static is needed (apt-get install busybox-static): %w", err)
	}
	files := map[string]File{
		"bin/busybox": {Body: program, Mode: 0o755},
		"etc/passwd":  {Body: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		"etc/group":   {Body: []byte("root:x:0:\nnogroup:x:65534:\n")},
		"root":        {Dir: true, Mode: 0o700},
		"tmp":         {Dir: true, Mode: 0o1777},
	}
	for _, dir := range []string{"dev", "proc", "sys", "home", "run", "usr/bin", "var/log"} {
		files[dir] = File{Dir: true}
	}
	for a := range strings.FieldsSeq(applets) {
		files["bin/"+a] = File{Hardlink: "bin/busybox"}
	}
	// Hard links come after their target in the archive, whatever their names.
	files["bin/["] = File{Symlink: "busybox"}
	for a := range strings.FieldsSeq(applets) {
		if "bin/"+a < "bin/busybox" {
			files["bin/"+a] = File{Symlink: "busybox"}
		}
	}
	return Layer{Files: files}, nil
}

// Applets is a layer of links for all the programs of busybox that the layer
// below, which is Busybox's, has no links for. Shells other than busybox's need them.
func Applets(below Layer) (Layer, error) {
	out, err := exec.Command(BusyboxPath, "--list").Output()
	if err != nil {
		return Layer{}, fmt.Errorf("ask busybox for its programs: %w", err)
	}
	l := Layer{Files: map[string]File{}}
	for name := range strings.FieldsSeq(string(out)) {
		if _, ok := below.Files["bin/"+name]; !ok {
			l.Files["bin/"+name] = File{Symlink: "busybox"}
		}
	}
	return l, nil
}
