package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// master is in the title of a web server, after its name, as specs look for it.
const master = ": master process "

// pidFile is where specs find the process of the web server.
const pidFile = "/var/run/nginx.pid"

// serve is a web server on a port, 80 if none is given.
func serve(name string, args []string) error {
	if !strings.Contains(os.Args[0], master) {
		return unix.Exec(os.Args[0], append([]string{name + master + os.Args[0]}, args...), os.Environ())
	}
	if err := os.MkdirAll(filepath.Dir(pidFile), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return err
	}
	port := "80"
	if len(args) > 0 {
		port = args[0]
	}
	fmt.Printf("%s serves port %s\n", name, port)
	return http.ListenAndServe(":"+port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s\n", r.Method, r.URL)
		fmt.Fprintln(w, "<html>hello</html>")
	}))
}
