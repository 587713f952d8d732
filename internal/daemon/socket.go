package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/internal/errdefs"
)

// maxSocketPath is what fits into sockaddr_un, without the final zero.
const maxSocketPath = 107

// listen makes the socket, for root alone. The caller owns the state directory,
// so a socket that is there already is one that a crash left.
func listen(endpoint string) (net.Listener, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The permission has to be there before anybody can connect.
	l, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// listenPrivate makes the socket under a name that nobody knows, closes it to
// others, and gives it its name.
func listenPrivate(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(filepath.Join(dir, "s"), 0o600), os.Rename(filepath.Join(dir, "s"), path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{UnixListener: l, path: path}, nil
}

// socket removes its file when it is closed.
type socket struct {
	*net.UnixListener
	path string
}

func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if rm := os.Remove(s.path); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("listen on %q: want unix:///path or an absolute path: %w", endpoint, errdefs.ErrInvalidArgument)
	}
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("listen on %s: the path of a socket has %d bytes at most; choose a shorter one with --listen or --state: %w",
			path, maxSocketPath, errdefs.ErrInvalidArgument)
	}
	return path, nil
}

func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on %s: there is something that is no socket; move it away: %w", path, errdefs.ErrAlreadyExists)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	return nil
}
