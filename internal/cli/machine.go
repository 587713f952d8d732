package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/machine"
)

// absolute is a path from wherever the command was called.
func absolute(path string) (string, error) {
	if path == "" {
		return "", usageError{errors.New("the path of the folder is empty")}
	}
	return filepath.Abs(path)
}

// machineClient asks the fairlead up that runs.
type machineClient struct {
	http   http.Client
	socket string
}

func (a *app) machine() (*machineClient, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	socket := machine.Socket(cfg.State)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &machineClient{http: http.Client{Transport: &http.Transport{DialContext: dial}}, socket: socket}, nil
}

// do asks, and gives the answer to read. The error of an answer is its text.
func (c *machineClient) do(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.absent(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	return nil, &refusal{strings.TrimSpace(string(text)), resp.StatusCode}
}

// refusal is an answer that says what is wrong.
type refusal struct {
	text   string
	status int // of HTTP
}

func (r *refusal) Error() string { return r.text }

// isAbsent says whether what was asked for is not there.
func isAbsent(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// absent says what to do where nobody answers.
func (c *machineClient) absent(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("only root can ask what keeps the pods of this machine, at %s: %w", c.socket, errdefs.ErrPrecondition)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody keeps the pods of this machine; start that with: fairlead up (there is no answer at %s): %w", c.socket, errdefs.ErrUnavailable)
	}
	return err
}

// get asks for something that is decoded into v.
func (c *machineClient) get(ctx context.Context, method, path string, body []byte, v any) error {
	answer, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	return json.NewDecoder(answer).Decode(v)
}

// objectPath is where an object is deleted.
func objectPath(kind, namespace, name string) string {
	return "/objects/" + url.PathEscape(kind) + "/" + url.PathEscape(name) + "?namespace=" + url.QueryEscape(namespace)
}
