package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/cluster/pace"
)

// again is how often it is told that a certificate ends, once it should be renewed.
const again = 24 * time.Hour

// user is who a node is by its kubeconfig.
type user struct {
	*clientcmdapi.AuthInfo
	kubeconfig string
}

// userOf reads the user of a kubeconfig's current context, with absolute paths. The error
// is fs.ErrNotExist where there is no such file.
func userOf(kubeconfig string) (user, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(config)
	}
	if err != nil {
		return user{}, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.AuthInfos[context.AuthInfo] == nil {
		return user{}, fmt.Errorf("read kubeconfig %s: its current context names no user of it: %w", kubeconfig, errdefs.ErrInvalidArgument)
	}
	return user{config.AuthInfos[context.AuthInfo], kubeconfig}, nil
}

// folder is where the certificate can be replaced: it has key and certificate in one file,
// NAME-current.pem, as a kubelet writes it.
func (u user) folder() (Folder, bool) {
	name, is := strings.CutSuffix(filepath.Base(u.ClientCertificate), "-current.pem")
	if !is || name == "" || u.ClientKey != u.ClientCertificate || len(u.ClientCertificateData) > 0 {
		return Folder{}, false
	}
	return Folder{Dir: filepath.Dir(u.ClientCertificate), Name: name}, true
}

// certificate reads it. It is nil for a user that has none, but a token, say.
func (u user) certificate() (*x509.Certificate, error) {
	chain, key := u.ClientCertificateData, u.ClientKeyData
	if len(chain) == 0 && u.ClientCertificate == "" {
		return nil, nil
	}
	var err error
	if len(chain) == 0 {
		chain, err = os.ReadFile(u.ClientCertificate)
	}
	if err == nil && len(key) == 0 {
		key, err = os.ReadFile(u.ClientKey)
	}
	if err != nil {
		return nil, fmt.Errorf("read the certificate of kubeconfig %s: %w", u.kubeconfig, err)
	}
	c, err := pair(chain, key, u.kubeconfig)
	if err != nil {
		return nil, err
	}
	return c.Leaf, nil
}

// KeepClient returns what keeps the client certificate of a kubeconfig, until its context
// ends. One in a Folder, as a kubelet's is, is renewed there. For another one, which nobody
// here can replace, tell is called with the date on which it ends and what to do: at once,
// and each day from when it should have been renewed. The folder of who asks is not used.
func KeepClient(kubeconfig string, a Asker, tell func(message string)) (func(context.Context) error, error) {
	u, err := userOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	has, err := u.certificate()
	if err != nil {
		return nil, err
	}
	if has == nil {
		return func(ctx context.Context) error { <-ctx.Done(); return nil }, nil
	}
	folder, ok := u.folder()
	if ok && has.Subject.CommonName == subject(a.Node).CommonName {
		a.Folder = folder
		return ForClient(a).Run, nil
	}
	return func(ctx context.Context) error {
		u.watch(ctx, a, tell)
		return nil
	}, nil
}

// watch tells of the end of a certificate, which others may replace meanwhile.
func (u user) watch(ctx context.Context, a Asker, tell func(string)) {
	var told time.Time
	for {
		has, err := u.certificate()
		if err == nil {
			a.Metrics.Client(has)
		}
		switch {
		case err != nil:
			a.Log.Warn("it is not known when the client certificate of this node ends", "error", err)
		case told.IsZero() || time.Now().After(due(has)) && time.Since(told) >= again:
			told = time.Now()
			tell(u.ends(has))
		}
		if !pace.Sleep(ctx, time.Hour) {
			return
		}
	}
}

func (u user) ends(has *x509.Certificate) string {
	where, renew := "in "+u.kubeconfig, ""
	if len(u.ClientCertificateData) == 0 {
		where, renew = u.ClientCertificate, ", or have another program renew that file"
	}
	return fmt.Sprintf("The client certificate %s, for %s, ends at %s, and this node does not renew it: from then on the API server does not know the node any more. "+
		"Give --bootstrap-kubeconfig and a --kubeconfig that is not there yet, which gets a certificate that is renewed%s",
		where, has.Subject.CommonName, has.NotAfter.UTC().Format(time.RFC3339), renew)
}

// bootstrapped says whether a kubeconfig stands or falls with a certificate that can be
// asked for, and where that is: in its folder, or in another one if it is not there yet.
func bootstrapped(kubeconfig string, fresh Folder) (Folder, bool, error) {
	u, err := userOf(kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, true, nil
	}
	if err != nil {
		return Folder{}, false, err
	}
	folder, ok := u.folder()
	return folder, ok, nil
}
