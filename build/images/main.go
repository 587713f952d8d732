// Command images makes the images of Fairlead from programs that are built already,
// without a container engine: an index of all architectures for each image, in a
// folder and an archive of the OCI's layout, and in a registry if one is named. The
// same files make the same digests, wherever and whenever.
//
// It builds no programs and downloads nothing: make images has them ready.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// options are the flags.
type options struct {
	programs string   // folder with ARCH/fairlead
	payloads []string // folders, as readPayload reads them
	archs    []string
	version  string
	output   string
	registry string
}

func main() {
	var o options
	var archs string
	flag.StringVar(&o.programs, "programs", "", "folder with the program fairlead, in a folder for each architecture")
	flag.StringVar(&archs, "arch", "amd64,arm64", "architectures, with commas; of a payload those that it has")
	flag.StringVar(&o.version, "version", "", "version, which becomes the tag")
	flag.StringVar(&o.output, "output", "", "folder to write to; what an earlier run has written there is replaced")
	flag.StringVar(&o.registry, "registry", "", "registry and path to push the images below (default: push nothing)")
	flag.Func("payload", "folder of a payload to make an image of; may be given more than once", func(dir string) error {
		o.payloads = append(o.payloads, dir)
		return nil
	})
	flag.Parse()
	o.archs = strings.Split(archs, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func (o options) validate() error {
	if o.programs == "" || o.version == "" || o.output == "" {
		return errors.New("-programs, -version and -output are needed")
	}
	return nil
}

func run(ctx context.Context, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return err
	}
	// Layers are files until everything is written: they are too large for memory.
	work, err := os.MkdirTemp(o.output, ".work-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	all, err := describe(o)
	if err != nil {
		return err
	}
	p := newPacker(work)
	var made []product
	for i := range all {
		one, err := p.pack(&all[i])
		if err != nil {
			return fmt.Errorf("make image %s: %w", all[i].name, err)
		}
		made = append(made, one)
	}
	if err := write(o.output, o.registry, made); err != nil {
		return err
	}
	if o.registry == "" {
		return nil
	}
	return push(ctx, o.registry, made)
}
