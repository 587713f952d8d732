package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/pelletier/go-toml/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// crio is what CRI-O calls itself.
const crio = "cri-o"

// handlerOf is where CRI-O notes the handler of a pod, in the specification of its
// first process.
const handlerOf = "io.kubernetes.cri-o.RuntimeHandler"

// onHandlers asks CRI-O for the handler of each sandbox, as its lists have none, and
// leaves out sandboxes that are gone meanwhile.
func onHandlers(ctx context.Context, r runtimeapi.RuntimeServiceClient, all []Sandbox) ([]Sandbox, error) {
	var here []Sandbox
	for _, s := range all {
		if s.Handler == "" {
			reply, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID, Verbose: true})
			if status.Code(err) == codes.NotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			if s.Handler, err = readHandler(reply.GetInfo()["info"]); err != nil {
				return nil, fmt.Errorf("find the handler of pod %s/%s, sandbox %s: %w", s.Namespace, s.Name, s.ID, err)
			}
		}
		here = append(here, s)
	}
	return here, nil
}

func readHandler(info string) (string, error) {
	var read struct {
		Spec struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info), &read); err != nil {
		return "", fmt.Errorf("read what CRI-O tells of it: %w", err)
	}
	handler, ok := read.Spec.Annotations[handlerOf]
	if !ok {
		return "", fmt.Errorf("CRI-O does not tell %s", handlerOf)
	}
	return handler, nil
}

// inForce asks CRI-O for the handlers in the configuration that it runs with, which
// it serves beside the CRI, and no field of the CRI has. One that does not serve it
// has none that are known.
func (c Client) inForce(ctx context.Context) (map[string]Loaded, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	}
	web := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://crio/config", nil)
	if err != nil {
		return nil, fmt.Errorf("ask CRI-O for its configuration: %w", err)
	}
	reply, err := web.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ask CRI-O for its configuration: %w (%w)", err, errdefs.ErrUnavailable)
		}
		return nil, nil // it does not speak HTTP there
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(reply.Body, maxMessage))
	if err != nil {
		return nil, fmt.Errorf("ask CRI-O for its configuration: %w (%w)", err, errdefs.ErrUnavailable)
	}
	return readInForce(data)
}

func readInForce(data []byte) (map[string]Loaded, error) {
	var read struct {
		CRIO struct {
			Runtime struct {
				Runtimes map[string]struct {
					Type       string   `toml:"runtime_type"`
					Path       string   `toml:"runtime_path"`
					ConfigPath string   `toml:"runtime_config_path"`
					Monitor    string   `toml:"monitor_path"`
					Root       string   `toml:"runtime_root"`
					Privileged bool     `toml:"privileged_without_host_devices"`
					Allowed    []string `toml:"allowed_annotations"`
				} `toml:"runtimes"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	if err := toml.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("read the configuration that CRI-O shows: %w", err)
	}
	all := map[string]Loaded{}
	for name, r := range read.CRIO.Runtime.Runtimes {
		all[name] = Loaded{
			Type: r.Type, Path: r.Path, ConfigPath: r.ConfigPath, Monitor: r.Monitor, Root: r.Root,
			PrivilegedWithoutHostDevices: r.Privileged, AllowedAnnotations: r.Allowed,
		}
	}
	return all, nil
}
