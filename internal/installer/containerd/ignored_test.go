package containerd

import (
	"strings"
	"testing"
)

// containerd itself writes settings of its streams by the old name into new files; all
// else by a name of another version is read by nobody.
func TestIgnored(t *testing.T) {
	const streams = "[plugins.'io.containerd.grpc.v1.cri']\n  stream_server_port = '0'\n  [plugins.'io.containerd.grpc.v1.cri'.x509_key_pair_streaming]\n    tls_cert_file = ''\n"
	for name, c := range map[string]struct{ text, says string }{
		"streams in version 4":     {"version = 4\n" + streams, ""},
		"streams in version 3":     {"version = 3\n" + streams, ""},
		"streams in version 1":     {streams, `:1: plugins."io.containerd.grpc.v1.cri" is a name of version 2, and the file has version 1`},
		"more than streams":        {"version = 3\n" + streams + "[plugins.'io.containerd.grpc.v1.cri'.containerd]\n", ":2: "},
		"an old handler":           {"version = 3\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.a]\n", ":2: "},
		"no table":                 {"version = 3\n[plugins]\n\"io.containerd.grpc.v1.cri\" = 1\n", ":3: "},
		"version 2 in version 2":   {"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.a]\n", ""},
		"version 1 in version 2":   {"version = 2\n[plugins.cri]\n  a = 1\n", "plugins.cri is a name of version 1"},
		"version 3 in version 2":   {"version = 2\n[plugins.\"io.containerd.cri.v1.runtime\"]\n", "name of version 3"},
		"versions 3 and 4 are one": {"version = 4\n[plugins.\"io.containerd.cri.v1.runtime\".containerd]\n", ""},
	} {
		l := Layout{Root: t.TempDir(), Main: main}
		put(t, l.Root, Change{main, []byte(c.text)})
		config, err := Load(l)
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(config.Ignored(), "\n"); (all == "") != (c.says == "") || !strings.Contains(all, c.says) {
			t.Errorf("%s: %q, want %q", name, all, c.says)
		}
	}
}
