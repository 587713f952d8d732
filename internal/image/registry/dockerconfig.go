package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"fairlead.run/internal/errdefs"
)

// maxDockerConfig is the size above which a config.json is not read.
const maxDockerConfig = 1 << 20

// helperTimeout bounds a credential helper; some ask a cloud's API.
const helperTimeout = 30 * time.Second

// dockerConfig is the part of docker's config.json that is about credentials.
type dockerConfig struct {
	Auths       map[string]dockerLogin `json:"auths"`
	CredHelpers map[string]string      `json:"credHelpers"`
	CredsStore  string                 `json:"credsStore"`
}

type dockerLogin struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
}

// lookUpLogin returns what the first file that knows the registry has for it.
// A file that does not exist is no error; one that cannot be read is, because
// an anonymous pull in its place would fail with a message that misleads.
func lookUpLogin(ctx context.Context, files []string, host, repo string) (login, error) {
	for _, file := range files {
		cfg, err := readDockerConfig(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			continue
		}
		if err != nil {
			return login{}, err
		}
		l, found, err := cfg.find(ctx, host, repo)
		if err != nil {
			return login{}, fmt.Errorf("credentials for %s in %s: %w", host, file, err)
		}
		if found {
			return l, nil
		}
	}
	return login{}, nil
}

func readDockerConfig(file string) (*dockerConfig, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read docker credentials: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxDockerConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read docker credentials: %w", err)
	}
	if len(b) > maxDockerConfig {
		return nil, fmt.Errorf("docker credentials %s: larger than 1 MiB, which no config.json is: %w", file, errdefs.ErrInvalidArgument)
	}
	var cfg dockerConfig
	if err := json.Unmarshal(b, &cfg); err != nil {
		var at *json.SyntaxError
		if errors.As(err, &at) { // the offset is safe to print, the text around it is not
			return nil, fmt.Errorf("docker credentials %s: not JSON at byte %d; correct or remove the file: %w", file, at.Offset, errdefs.ErrInvalidArgument)
		}
		return nil, fmt.Errorf("docker credentials %s: not in docker's format; correct or remove the file: %w", file, errdefs.ErrInvalidArgument)
	}
	return &cfg, nil
}

// find looks for the most specific entry: keys may be a host, a host with the
// beginning of a repository, a URL, and may have * in the host, as the kubelet
// has it.
func (c *dockerConfig) find(ctx context.Context, host, repo string) (login, bool, error) {
	for key, helper := range c.CredHelpers {
		if sameRegistry(hostOf(key), host) {
			return runHelper(ctx, helper, key)
		}
	}
	best, bestLen := "", -1
	for key := range c.Auths {
		if n := matchKey(key, host, repo); n > bestLen {
			best, bestLen = key, n
		}
	}
	if bestLen >= 0 {
		e := c.Auths[best]
		a := Auth{Username: e.Username, Password: e.Password, Auth: e.Auth, IdentityToken: e.IdentityToken}
		l, err := a.login()
		if err != nil || l != (login{}) {
			return l, true, err
		}
	}
	if c.CredsStore == "" { // with a store, docker leaves empty entries in auths
		return login{}, false, nil
	}
	key := host
	if canonicalHost(host) == "docker.io" {
		key = "https://index.docker.io/v1/"
	}
	return runHelper(ctx, c.CredsStore, key)
}

// matchKey says how many characters of host/repo the key covers, or -1 if it
// is for something else.
func matchKey(key, host, repo string) int {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	keyHost, keyPath, _ := strings.Cut(key, "/")
	keyPath = strings.Trim(keyPath, "/")
	if keyPath == "v1" || keyPath == "v2" {
		keyPath = ""
	}
	if !matchHost(keyHost, host) {
		return -1
	}
	if keyPath != "" && keyPath != repo && !strings.HasPrefix(repo, keyPath+"/") {
		return -1
	}
	n := 2 * len(keyPath)
	if !strings.Contains(keyHost, "*") {
		n++ // an exact host beats a pattern
	}
	return n
}

// matchHost compares part by part, so that * stands for one part of the name.
func matchHost(pattern, host string) bool {
	if sameRegistry(pattern, host) {
		return true
	}
	p, h := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(p) != len(h) {
		return false
	}
	for i := range p {
		if ok, err := path.Match(p[i], h[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// runHelper asks docker-credential-NAME.
func runHelper(ctx context.Context, name, server string) (login, bool, error) {
	if name == "" || strings.ContainsAny(name, "/\\ ") {
		return login{}, false, fmt.Errorf("credential helper %q: the name may have no slash or space: %w", name, errdefs.ErrInvalidArgument)
	}
	program := "docker-credential-" + name
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "get")
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(server + "\n")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		// Helpers say "credentials not found" on standard output, with exit 1.
		if msg := out.String(); len(msg) < 200 && strings.Contains(msg, "not found") {
			return login{}, false, nil
		}
		return login{}, false, fmt.Errorf("run %s: %w: %w", program, err, errdefs.ErrUnavailable)
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return login{}, false, fmt.Errorf("%s did not answer in JSON: %w", program, errdefs.ErrInvalidArgument)
	}
	if answer.Username == "<token>" {
		answer.Username = ""
	}
	return login{answer.Username, answer.Secret}, answer.Secret != "", nil
}
