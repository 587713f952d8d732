package cluster

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Joiner starts the node agent in other ways than the cluster has, as a node that has to
// ask for its certificates.
type Joiner struct {
	c      *Cluster
	before []string // its arguments
	folder string   // of what it makes
}

// Joiner has the agent end. Restore starts it as it was.
func (c *Cluster) Joiner() (*Joiner, error) {
	return &Joiner{c: c, before: slices.Clone(c.Kubelet.Argv), folder: filepath.Join(c.node.memory, "joined")}, c.Kubelet.Stop()
}

// Join starts the agent with a kubeconfig that it has to make, by a bootstrap kubeconfig,
// and with a certificate of its API that it has to ask for. Without a bootstrap kubeconfig
// it starts with what it has made before.
func (j *Joiner) Join(bootstrap string) error {
	argv := slices.Clone(j.before)
	set := func(flag, value string) {
		if i := slices.Index(argv, flag); i >= 0 {
			argv[i+1] = value
			return
		}
		argv = append(argv, flag, value)
	}
	set("--kubeconfig", filepath.Join(j.folder, "kubeconfig"))
	set("--cert-dir", filepath.Join(j.folder, "pki"))
	if bootstrap != "" {
		set("--bootstrap-kubeconfig", bootstrap)
	}
	if j.c.cfg.Agent == FairleadNode {
		set("--tls-cert-file", "")
		set("--tls-private-key-file", "")
		argv = append(argv, "--rotate-server-certificates")
	} else {
		text, err := j.c.node.Read(filepath.Join(j.c.node.memory, "kubelet.yaml"))
		if err != nil {
			return err
		}
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.HasPrefix(l, "tls") })
		config := filepath.Join(j.folder, "kubelet.yaml")
		if err := j.c.node.Write(config, strings.Join(append(lines, "rotateCertificates: true", "serverTLSBootstrap: true", ""), "\n")); err != nil {
			return err
		}
		set("--config", config)
	}
	j.c.Kubelet.Argv = argv
	return j.c.Kubelet.Start()
}

// Certificate is that by which the node is itself for the API server, as it lies on the
// node with its key.
func (j *Joiner) Certificate() (string, error) { return j.c.node.Read(j.current()) }

// Age puts a certificate in its place that should have been renewed long ago and ends
// within the hour.
func (j *Joiner) Age() error {
	err := j.c.ca.sign("aged", x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:" + NodeName, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-47 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	var text []byte
	for _, name := range []string{"aged.crt", "aged.key"} {
		part, err := os.ReadFile(j.c.ca.file(name))
		if err != nil {
			return err
		}
		text = append(text, part...)
	}
	return j.c.node.Write(j.current(), string(text)) // through the link
}

// current is a link, that the kubeconfig names.
func (j *Joiner) current() string {
	name := "kubelet-client-current.pem"
	if j.c.cfg.Agent == FairleadNode {
		name = "fairlead-client-current.pem"
	}
	return filepath.Join(j.folder, "pki", name)
}

// Stop has the agent end.
func (j *Joiner) Stop() error { return j.c.Kubelet.Stop() }

// Restore starts the agent as it was.
func (j *Joiner) Restore(ctx context.Context) error {
	err := j.Stop()
	j.c.Kubelet.Argv = j.before
	if err := errors.Join(err, j.c.Kubelet.Start()); err != nil {
		return fmt.Errorf("start the node agent as it was: %w", err)
	}
	return j.c.Kubelet.Await(ctx, j.c.cfg.Patience, j.c.NodeReady)
}
