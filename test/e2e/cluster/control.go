package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Addresses of the cluster, which are those of the arena's own network.
const (
	// HostAddress is this machine's, on an interface made for it.
	HostAddress = "10.214.0.1"

	guestAddress   = "10.214.0.2"
	apiServer      = "https://" + HostAddress + ":6443"
	etcdClients    = "http://127.0.0.1:2379"
	etcdPeers      = "http://127.0.0.1:2380"
	serviceRange   = "10.96.0.0/16"
	serviceAddress = "10.96.0.1" // of the API server's own service
	podRange       = "10.213.0.0/16"
)

// controlPlane starts what a cluster has beside its node. Nothing in it
// outlives the arena, so etcd need not wait for a disk.
func (c *Cluster) controlPlane(ctx context.Context) error {
	_, err := c.start(ctx, []string{
		c.program("etcd"), "--data-dir", filepath.Join(c.cfg.Arena.Memory, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", etcdClients, "--advertise-client-urls", etcdClients,
		"--listen-peer-urls", etcdPeers, "--initial-advertise-peer-urls", etcdPeers, "--initial-cluster", "default=" + etcdPeers,
		"--log-level", "warn",
	}, accepts("127.0.0.1:2379"))
	if err != nil {
		return err
	}
	if c.APIServer, err = c.start(ctx, c.apiServerCommand(c.cfg.APIServer), c.apiServerReady); err != nil {
		return err
	}
	always := func(context.Context) error { return nil }
	_, err = c.start(ctx, []string{
		c.program("kube-controller-manager"), "--kubeconfig", c.ca.file("controller-manager.kubeconfig"),
		"--use-service-account-credentials", "--service-account-private-key-file", c.ca.file("sa.key"),
		"--root-ca-file", c.ca.file("ca.crt"), "--cluster-signing-cert-file", c.ca.file("ca.crt"),
		"--cluster-signing-key-file", c.ca.file("ca.key"), "--leader-elect=false", "--bind-address", "127.0.0.1",
		"--cluster-cidr", podRange, "--allocate-node-cidrs=false",
	}, always)
	if err != nil {
		return err
	}
	_, err = c.start(ctx, []string{
		c.program("kube-scheduler"), "--kubeconfig", c.ca.file("scheduler.kubeconfig"), "--leader-elect=false",
		"--bind-address", "127.0.0.1",
	}, always)
	return err
}

// RestartAPIServer starts the API server anew, with these further flags and not
// those that it had.
func (c *Cluster) RestartAPIServer(ctx context.Context, flags ...string) error {
	if err := c.APIServer.Stop(); err != nil {
		return err
	}
	c.APIServer.Argv = c.apiServerCommand(flags)
	if err := c.APIServer.Start(); err != nil {
		return err
	}
	return c.APIServer.Await(ctx, c.cfg.Patience, c.apiServerReady)
}

// ServeAPIInPods has pods reach the API server at the address of its service. That
// is what kube-proxy would do, if there were one; it does it for no other service.
func (c *Cluster) ServeAPIInPods(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table ip e2e {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr %s tcp dport 443 dnat to %s:6443
	}
}
`, serviceAddress, HostAddress))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

func (c *Cluster) apiServerCommand(further []string) []string {
	return append([]string{
		c.program("kube-apiserver"), "--etcd-servers", etcdClients,
		"--secure-port", "6443", "--advertise-address", HostAddress, "--service-cluster-ip-range", serviceRange,
		"--tls-cert-file", c.ca.file("apiserver.crt"), "--tls-private-key-file", c.ca.file("apiserver.key"),
		"--client-ca-file", c.ca.file("ca.crt"), "--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", c.ca.file("sa.key"), "--service-account-signing-key-file", c.ca.file("sa.key"),
		"--kubelet-client-certificate", c.ca.file("admin.crt"), "--kubelet-client-key", c.ca.file("admin.key"),
		"--kubelet-certificate-authority", c.ca.file("ca.crt"), "--kubelet-preferred-address-types", "InternalIP",
		"--allow-privileged", "--profiling=false",
	}, further...)
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "get", "--raw", "/readyz")
	return err
}

// certificates makes those of all programs.
func (c *Cluster) certificates() (err error) {
	if c.ca, err = newAuthority(filepath.Join(c.cfg.Arena.Memory, "pki")); err != nil {
		return fmt.Errorf("make a certificate authority: %w", err)
	}
	loopback, host := net.ParseIP("127.0.0.1"), net.ParseIP(HostAddress)
	err = c.ca.server("apiserver", []net.IP{loopback, host, net.ParseIP(serviceAddress)},
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	if err := c.ca.server("kubelet", []net.IP{loopback, net.ParseIP(c.node.address)}, NodeName); err != nil {
		return err
	}
	// Of the HTTPS server in the image of agnhost.
	if err := c.ca.server("localhost", []net.IP{loopback}, "localhost"); err != nil {
		return err
	}
	for _, u := range []struct{ name, user, group string }{
		{"admin", "admin", "system:masters"},
		{"controller-manager", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"node", "system:node:" + NodeName, "system:nodes"},
	} {
		path, err := c.ca.client(u.name, u.user, u.group)
		if err != nil {
			return fmt.Errorf("make the certificate of %s: %w", u.user, err)
		}
		if u.name == "admin" {
			c.Kubeconfig = path
		}
	}
	return nil
}

// accepts says whether somebody listens on an address.
func accepts(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func write(path, data string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(data), 0o644)
}
