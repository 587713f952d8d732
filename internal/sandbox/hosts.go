package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
)

// nodeHosts is the node's hosts file, which a pod on the node's network shares.
const nodeHosts = "/etc/hosts"

// localHosts is the beginning of every pod's hosts file: the names that
// programs expect on any Linux machine.
const localHosts = "127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\n" +
	"fe00::0\tip6-mcastprefix\n" +
	"fe00::1\tip6-allnodes\n" +
	"fe00::2\tip6-allrouters\n"

// hosts is the content of a pod's hosts file: its own name for each of its
// addresses. The name was checked when the pod was made.
func hosts(hostname string, ips []netip.Addr) []byte {
	var b bytes.Buffer
	b.WriteString(localHosts)
	for _, ip := range ips {
		if ip.IsValid() && hostname != "" {
			fmt.Fprintf(&b, "%s\t%s\n", ip.Unmap().WithZone(""), hostname)
		}
	}
	return b.Bytes()
}

// hostsOfNode is a copy of the node's file, or the names that any machine has.
func hostsOfNode(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return []byte(localHosts), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's hosts file: %w", err)
	}
	return b, nil
}
