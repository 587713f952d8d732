// Command webserver answers every request with who it is and what runs it. The
// demo packs it into an image of one file.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	name, _ := os.Hostname()
	server := &http.Server{Addr: ":80", ReadHeaderTimeout: 5 * time.Second}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Printf("%s %s from %s", r.Method, r.URL.Path, r.RemoteAddr)
		_, _ = fmt.Fprintf(w, "Hello from pod %s (hostname %s), runtime class %q, process %d.\n",
			os.Getenv("POD_NAME"), name, os.Getenv("RUNTIME_CLASS"), os.Getpid())
	})
	go func() {
		<-ctx.Done()
		_ = server.Shutdown(context.Background())
	}()
	log.Print("serving on port 80")
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	log.Print("told to stop, bye")
}
