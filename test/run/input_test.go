package run

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSignalEndsReading interrupts commands that read what nobody ends.
func TestSignalEndsReading(t *testing.T) {
	m := newMachine(t)
	fifo := filepath.Join(m.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0) // a writer for as long as the test runs
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	for _, tt := range []struct {
		args   []string
		signal syscall.Signal
	}{
		{[]string{"run", "-f", "-"}, syscall.SIGINT},
		{[]string{"run", "-f", fifo}, syscall.SIGTERM},
		{[]string{"image", "import", "-"}, syscall.SIGINT},
		{[]string{"image", "import", fifo}, syscall.SIGTERM},
	} {
		cmd := m.command(tt.args...)
		cmd.Stdin = pipe
		j := m.start(cmd)
		if _, err := pipe.WriteString("# a beginning\n"); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); unread(t, pipe) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%q does not read\n%s", tt.args, j.err)
			}
		}
		j.signal(tt.signal)
		j.ends(130)
		if text := j.out.String() + j.err.String(); text != "" {
			t.Errorf("%q says %q", tt.args, text)
		}
	}
}

// TestSignalEndsPull interrupts a pull from a registry that never answers.
func TestSignalEndsPull(t *testing.T) {
	m := newMachine(t)
	silent, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	if err := silent.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	j := m.background("image", "pull", silent.Addr().String()+"/none:1")
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	j.signal(syscall.SIGINT)
	j.ends(130)
	if text := j.err.String(); strings.Contains(text, "canceled") {
		t.Errorf("it says %q", text)
	}
}

// unread is how many bytes are in a pipe.
func unread(t *testing.T, pipe *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ) // of a pipe: FIONREAD
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBadDefaultHandler wants the key and its value named.
func TestBadDefaultHandler(t *testing.T) {
	m := newMachine(t)
	bad := m.write("zz.toml", "default_handler = \"zz\"\n")
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: 'x:1'}]}\n"
	r := m.wantWith(pod, 1, "--config", bad, "run", "-f", "-")
	if !strings.Contains(r.err, `standard input:1: document 1: Pod default/a: names no RuntimeClass, and the default handler zz (default_handler in the configuration) does not work here: default_handler = "zz" names no handler of this node`) {
		t.Errorf("run: %s", r.err)
	}
	if r := m.want(0, "--config", bad, "handlers"); !strings.Contains(r.out, `default_handler = "zz" names no handler`) {
		t.Errorf("handlers: %s", r.out)
	}
	tables := m.write("tables.toml", "default_handler = \"zz\"\n[handlers.runc]\n")
	if r := m.want(1, "--config", tables, "handlers"); !strings.Contains(r.err, tables+`:1: default_handler: there is no handler "zz"; there are runc`) {
		t.Errorf("with a table of handlers: %s", r.err)
	}
}

// TestListFromACluster runs what kubectl get -o yaml would write.
func TestListFromACluster(t *testing.T) {
	m := newMachine(t)
	list := fill(`apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a, uid: u-1, resourceVersion: "7", creationTimestamp: "2026-01-02T03:04:05Z"}
  spec:
    nodeName: node-1
    restartPolicy: Never
    containers:
    - name: c
      image: IMAGE
      command: [sh, -c, "ls /var/run/secrets 2>&1; echo hello"]
      volumeMounts: [{name: kube-api-access-abcde, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]
    volumes: [{name: kube-api-access-abcde, projected: {sources: [{serviceAccountToken: {path: token}}]}}]
  status: {phase: Running}
`, "")
	r := m.wantWith(list, 0, "run", "-f", "-")
	if !strings.Contains(r.out, "No such file") || !strings.Contains(r.out, "a/c | hello") {
		t.Errorf("output: %s", r.out)
	}
	if !strings.Contains(r.err, "standard input:5: document 1, item 1: Pod default/a: was stored in a cluster; what that added is left out: ") {
		t.Errorf("the note is missing: %s", r.err)
	}
}

// TestOverhead looks at the limit of the pod's cgroup: its containers' and the
// overhead of its class.
func TestOverhead(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		text := fill(`
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: costly}
handler: HANDLER
overhead: {podFixed: {memory: 16Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  runtimeClassName: costly
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: IMAGE, command: [sleep, '1000'], resources: {limits: {memory: 64Mi}}}
`, "")
		m.wantWith(strings.ReplaceAll(text, "HANDLER", strings.TrimPrefix(class, "on-")), 0, "run", "--detach", "-f", "-")
		var pods []struct{ ID string }
		if err := json.Unmarshal([]byte(m.want(0, "ps", "-o", "json").out), &pods); err != nil || len(pods) != 1 {
			t.Fatalf("%+v, %v", pods, err)
		}
		var found []string
		for _, pattern := range []string{"/sys/fs/cgroup/memory/*/pod*/memory.limit_in_bytes", "/sys/fs/cgroup/*/pod*/memory.max", "/sys/fs/cgroup/*.slice/*.slice/memory.max"} {
			files, _ := filepath.Glob(pattern)
			for _, f := range files {
				if strings.Contains(f, "pod"+pods[0].ID) {
					found = append(found, f)
				}
			}
		}
		if len(found) != 1 {
			t.Fatalf("cgroups of pod %s: %q", pods[0].ID, found)
		}
		if got := strings.TrimSpace(readFile(t, found[0])); got != strconv.Itoa(80<<20) {
			t.Errorf("%s is %s, want 80 MiB", found[0], got)
		}
	})
}

// TestImageNames removes one name of two, then the other.
func TestImageNames(t *testing.T) {
	m := newMachine(t)
	const other = "localhost/other:1"
	m.want(0, "image", "import", "--name", other, archive)
	if r := m.want(0, "image", "rm", image); r.out != "untagged "+image+"\n" {
		t.Errorf("rm of one name: %q", r.out)
	}
	if r := m.want(0, "image", "ls"); strings.Contains(r.out, image) || !strings.Contains(r.out, other) {
		t.Errorf("ls after it: %s", r.out)
	}
	if r := m.want(0, "image", "rm", other); !strings.HasPrefix(r.out, "untagged "+other+"\nremoved sha256:") {
		t.Errorf("rm of the last name: %q", r.out)
	}
	if r := m.want(1, "image", "rm", other); !strings.Contains(r.err, "there is no image "+other) {
		t.Errorf("rm of what is gone: %s", r.err)
	}
	if r := m.want(1, "image", "pull", "a b"); strings.Contains(r.err, "pulling") || !strings.Contains(r.err, "a name is [HOST[:PORT]/]PATH[:TAG][@DIGEST]") {
		t.Errorf("pull of no name: %s", r.err)
	}
	if r := m.want(1, "image", "import", "/etc/passwd"); !strings.Contains(r.err, "neither an OCI layout nor an archive of docker save") {
		t.Errorf("import of a text: %s", r.err)
	}
}
