package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/pelletier/go-toml/v2"

	"fairlead.run/internal/errdefs"
)

// Hosts finds the hosts to ask for an image: mirrors from hosts.toml
// files, then the registry itself. Files are read once at each pull, so that a
// change needs no restart. Loopback hosts are spoken to in plain HTTP if they
// do not answer in TLS. What is found goes to tried as well.
func Hosts(ctx context.Context, certsDirs []string, creds Credentials, tried *HostList) docker.RegistryHosts {
	opts := config.HostOptions{
		Credentials:  func(host string) (string, string, error) { return creds.forHost(ctx, host) },
		UpdateClient: tried.addClient,
	}
	if root, err := firstDir(certsDirs); err != nil {
		return func(string) ([]docker.RegistryHost, error) { return nil, err }
	} else if root != "" {
		find := config.HostDirFromRoot(root)
		opts.HostDir = func(host string) (string, error) {
			dir, err := find(host)
			if err != nil {
				return "", err
			}
			return dir, checkHostsFile(filepath.Join(dir, "hosts.toml"))
		}
	}
	configured := config.ConfigureHosts(ctx, opts)
	return once(func(host string) ([]docker.RegistryHost, error) {
		hosts, err := configured(host)
		if err != nil {
			return nil, fmt.Errorf("registry configuration for %s: %w", host, err)
		}
		for i := range hosts {
			tried.add(hosts[i].Host)
			if t := creds.token(hosts[i].Host); t != "" {
				hosts[i].Authorizer = bearer{host: hosts[i].Host, token: t}
			}
		}
		return hosts, nil
	})
}

// once keeps what was found. The library asks for each of the two halves of a
// pull, and would connect, and log in, anew for the second one.
func once(find docker.RegistryHosts) docker.RegistryHosts {
	var mu sync.Mutex
	known := map[string][]docker.RegistryHost{}
	return func(host string) ([]docker.RegistryHost, error) {
		mu.Lock()
		defer mu.Unlock()
		hosts, ok := known[host]
		if !ok {
			var err error
			if hosts, err = find(host); err != nil {
				return nil, err
			}
			known[host] = hosts
		}
		return slices.Clone(hosts), nil
	}
}

// firstDir is the first of the folders that exists, or "".
func firstDir(dirs []string) (string, error) {
	for _, d := range dirs {
		_, err := os.Stat(d)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("registry configuration: %w", err)
		}
	}
	return "", nil
}

// checkHostsFile refuses a broken file. The library would log it and go to the
// registry itself, past the mirror that the file was written for.
func checkHostsFile(file string) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the folder holds certificates only
	}
	if err != nil {
		return err
	}
	var any map[string]any
	if err := toml.Unmarshal(b, &any); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, col := at.Position()
			return fmt.Errorf("%s:%d:%d: %w: %w", file, row, col, err, errdefs.ErrInvalidArgument)
		}
		return fmt.Errorf("%s: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// HostList collects the hosts of a pull and what was wrong with them, for its
// errors, and the connections to them.
type HostList struct {
	mu      sync.Mutex
	hosts   []string
	wrong   map[string]error // by host: its last answer, nil for one that is of use
	clients []http.Client
}

func (l *HostList) add(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.hosts, host) {
		l.hosts = append(l.hosts, host)
	}
}

// addClient notes a client that is about to be used, and bounds what it is
// answered. What the library puts around its transport later does not let go of
// connections.
func (l *HostList) addClient(c *http.Client) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, copied := c.Transport.(bounded); !copied {
		c.Transport = bounded{c.Transport, l.note}
	}
	l.clients = append(l.clients, http.Client{Transport: c.Transport})
	return nil
}

// note keeps what is wrong with an answer. That there is no such thing is an
// answer like any other.
func (l *HostList) note(host string, resp *http.Response, err error) {
	if err == nil && resp.StatusCode >= http.StatusBadRequest && resp.StatusCode != http.StatusNotFound {
		err = remoteerrors.ErrUnexpectedStatus{Status: resp.Status, StatusCode: resp.StatusCode}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong == nil {
		l.wrong = map[string]error{}
	}
	l.wrong[host] = err
}

// Wrong is what keeps the last host from saying whether it has the image, nil if
// nothing does. That is the registry itself, behind its mirrors.
func (l *HostList) Wrong() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.hosts) == 0 {
		return nil
	}
	return l.wrong[l.hosts[len(l.hosts)-1]]
}

// HangUp closes connections when a pull is over. Every pull has its own, so
// nobody would use them again; they would stay for half a minute.
func (l *HostList) HangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.clients {
		l.clients[i].CloseIdleConnections()
	}
}

// Names are the hosts in the order in which they are asked.
func (l *HostList) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hosts)
}

// bearer sends a ready-made token to one host, and to no other that it
// redirects to.
type bearer struct{ host, token string }

func (b bearer) Authorize(_ context.Context, req *http.Request) error {
	if req.URL.Host == b.host {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	return nil
}

func (b bearer) AddResponses(context.Context, []*http.Response) error {
	return fmt.Errorf("the registry token was refused: %w", docker.ErrInvalidAuthorization)
}
