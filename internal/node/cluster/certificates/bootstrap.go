package certificates

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
)

// Bootstrap is how a new node gets its kubeconfig: with another one that is only
// allowed to ask for a certificate.
type Bootstrap struct {
	Kubeconfig, With string // files: the one to make, and the one to begin with
	Node             string
	Folder           Folder // of the client certificate, if there is no kubeconfig yet
	Log              *slog.Logger
}

// Do makes the kubeconfig, unless there is one. Of one that names the certificate of
// a folder, as a kubelet's does, that certificate must hold still: a node that was off
// for long begins anew. It waits for somebody to allow the certificate.
func (b Bootstrap) Do(ctx context.Context) error {
	folder, ours, err := bootstrapped(b.Kubeconfig, b.Folder)
	if err != nil || !ours {
		return err
	}
	b.Folder = folder
	m := ForClient(Asker{Node: b.Node, Folder: folder, Client: b.Client, Log: b.Log})
	if c := m.Current(); c != nil && time.Now().Before(c.Leaf.NotAfter) && covers(c.Leaf, m.Template()) {
		return b.write()
	}
	m.current.Store(nil)
	if err := m.Ensure(ctx); err != nil {
		return fmt.Errorf("get the first client certificate with %s: %w", b.With, err)
	}
	return b.write()
}

// Client is that of who may only ask.
func (b Bootstrap) Client() (*cluster.Client, error) {
	config, err := cluster.Config(b.With, "")
	if err != nil {
		return nil, err
	}
	return cluster.NewClient(config)
}

// write makes the kubeconfig, unless it is there.
func (b Bootstrap) write() error {
	if _, err := os.Stat(b.Kubeconfig); err == nil {
		return nil
	}
	from, err := clientcmd.LoadFromFile(b.With)
	if err != nil {
		return fmt.Errorf("read bootstrap kubeconfig %s: %w", b.With, err)
	}
	if err := clientcmd.ResolveLocalPaths(from); err != nil {
		return fmt.Errorf("read bootstrap kubeconfig %s: %w", b.With, err)
	}
	context := from.Contexts[from.CurrentContext]
	if context == nil || from.Clusters[context.Cluster] == nil {
		return fmt.Errorf("read bootstrap kubeconfig %s: its current context names no cluster of it: %w", b.With, errdefs.ErrInvalidArgument)
	}
	const name = "default"
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = from.Clusters[context.Cluster]
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: b.Folder.CurrentPath(), ClientKey: b.Folder.CurrentPath()}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	text, err := clientcmd.Write(*out)
	if err != nil {
		return fmt.Errorf("encode kubeconfig %s: %w", b.Kubeconfig, err)
	}
	if err := os.MkdirAll(filepath.Dir(b.Kubeconfig), 0o700); err != nil {
		return fmt.Errorf("make the folder of kubeconfig %s: %w", b.Kubeconfig, err)
	}
	if err := atomicfile.WriteSync(b.Kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
