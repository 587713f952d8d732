package units

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/cli"
	"fairlead.run/internal/installer/profile"
	"fairlead.run/internal/installer/view"
	"fairlead.run/internal/monitor"
)

// admin is where the units of an administrator are.
const admin = "/etc/systemd/system/"

// targets are systemd's own units that those here are ordered by.
var targets = []string{"sysinit", "basic", "shutdown", "local-fs", "network-online", "multi-user"}

// node is the root directory of a host with programs that do nothing.
func node(t *testing.T, programs ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range programs {
		write(t, root, p, "#!/bin/true\n", 0o755)
	}
	for _, name := range targets {
		write(t, root, "/usr/lib/systemd/system/"+name+".target", "[Unit]\nDescription=Of systemd\n", 0o644)
	}
	return root
}

func write(t *testing.T, root, path, text string, mode os.FileMode) {
	t.Helper()
	at := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// verify is what systemd has to say against units of a node, warnings and all.
func verify(t *testing.T, root string, names ...string) string {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here; Debian's package is systemd")
	}
	cmd := exec.Command(program, append([]string{"verify", "--man=no", "--recursive-errors=yes", "--root=" + root}, names...)...)
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	said, err := cmd.CombinedOutput()
	if err != nil {
		said = append(said, err.Error()...)
	}
	return string(said)
}

// shipped are the files of deploy/systemd by their names.
func shipped(t *testing.T) map[string]string {
	t.Helper()
	const dir = "../../deploy/systemd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	if all["fairlead.service"] == "" {
		t.Fatalf("%s has no fairlead.service", dir)
	}
	return all
}

func TestShippedUnits(t *testing.T) {
	root := node(t, "/usr/bin/fairlead", "/usr/bin/fairlead-monitor", "/bin/sh")
	all := shipped(t)
	for name, text := range all {
		write(t, root, admin+name, text, 0o644)
	}
	if said := verify(t, root, slices.Sorted(maps.Keys(all))...); said != "" {
		t.Error(said)
	}
}

// What the units start are commands that there are, with flags and values that their own
// parsers take.
func TestCommandsOfShippedUnits(t *testing.T) {
	for name, text := range shipped(t) {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		commands := commandsOf(text)
		if commands["ExecStart"] == "" {
			t.Errorf("%s starts nothing", name)
		}
		for key, line := range commands {
			if err := parse(line); err != nil {
				t.Errorf("%s: %s=%s: %v", name, key, line, err)
			}
		}
	}
}

// Nothing of that is worth anything if these pass.
func TestCommandsThatAreNone(t *testing.T) {
	for _, line := range []string{
		"/usr/bin/fairlead none", "/usr/bin/fairlead runtime --stat /run/fairlead", "/usr/bin/fairlead runtime more",
		"/usr/bin/fairlead install monitor --distribution", "/usr/bin/fairlead node --node-status-update-frequency often", "/usr/bin/fairlead-monitor --stat /run/fairlead",
		"/usr/bin/fairlead-monitor --state run", "/usr/bin/fairlead-monitor more", "/usr/bin/fairlead-monitor --handover none", "/usr/bin/none",
	} {
		if parse(line) == nil {
			t.Errorf("%s passes", line)
		}
	}
}

// commandsOf are the lines of a unit that run something, by their keys.
func commandsOf(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if key, command, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(key, "Exec") {
			out[key] = strings.TrimLeft(command, "-+!:@")
		}
	}
	return out
}

// parse has a program of Fairlead's read its command line.
func parse(line string) error {
	program, rest, _ := strings.Cut(line, " ")
	switch program {
	case "/bin/sh":
		return nil // systemd-analyze sees to it
	case "/usr/bin/fairlead-monitor":
		// With --version it reads its command line, and does no more.
		if code := monitor.Main("test", append(strings.Fields(rest), "--version")); code != 0 {
			return fmt.Errorf("fairlead-monitor ends with %d", code)
		}
		return nil
	case "/usr/bin/fairlead":
	default:
		return fmt.Errorf("%s is no program of Fairlead's", program)
	}
	command, args, err := cli.Command("test").Find(strings.Fields(rest))
	if err != nil {
		return err
	}
	if command.RunE == nil {
		return fmt.Errorf("%s does nothing by itself", command.CommandPath())
	}
	if err := command.ParseFlags(args); err != nil {
		return err
	}
	return errors.Join(command.ValidateArgs(command.Flags().Args()), command.ValidateRequiredFlags())
}

// What the monitor of a containerd tells is written into the folder that its unit has
// made for it, as all others are read-only; it stays while containers have it mounted.
// Where Gardener's own monitor is, there is no second one.
func TestFolderOfTheRuntimesMonitor(t *testing.T) {
	text := shipped(t)["fairlead-cri-monitor.service"]
	for _, line := range []string{"ConditionPathExists=!/etc/systemd/system/containerd-monitor.service", "ConditionPathExists=!/etc/systemd/system/gardener-node-agent.service", "ProtectSystem=strict", "RuntimeDirectory=" + strings.TrimPrefix(view.Told, "/run/"), "RuntimeDirectoryPreserve=yes"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("it has no %s", line)
		}
	}
}

// containerd is a unit as packages of containerd have it.
const containerd = "[Unit]\nDescription=containerd\nAfter=local-fs.target\n[Service]\nType=notify\nExecStart=/usr/bin/containerd\nRestart=always\n[Install]\nWantedBy=multi-user.target\n"

// dropIn is what the installer writes for a containerd with a command line.
func dropIn(t *testing.T, args ...string) (path, text string) {
	t.Helper()
	d, err := profile.Detect(t.TempDir(), profile.Choice{Name: "containerd"})
	if err != nil {
		t.Fatal(err)
	}
	d, err = d.StartedAs(profile.Process{Start: profile.Start{Args: args}, Unit: "containerd.service"})
	if err != nil {
		t.Fatal(err)
	}
	return d.Containerd.Starter, string(d.Containerd.Start)
}

func TestDropInOfTheInstaller(t *testing.T) {
	for name, args := range map[string][]string{
		"plain":   {"/usr/bin/containerd"},
		"flags":   {"/usr/bin/containerd", "--log-level", "debug", "--config=" + profile.ContainerdMain},
		"special": {"/usr/bin/containerd", "--root", "/a b", "--label", `50% of $HOME; "this" 'that' \x`, "", ";"},
		"a path":  {"/opt/my containerd/100%/bin", "-c", profile.ContainerdMain},
	} {
		t.Run(name, func(t *testing.T) {
			path, text := dropIn(t, args...)
			root := node(t, "/usr/bin/containerd", args[0])
			write(t, root, admin+"containerd.service", containerd, 0o644)
			write(t, root, path, text, 0o644)
			if said := verify(t, root, "containerd.service"); said != "" {
				t.Errorf("%s\n%s", said, text)
			}
		})
	}
}

// Nothing of the above is worth anything if these are not told.
func TestFaultsAreTold(t *testing.T) {
	path, text := dropIn(t, "/usr/bin/containerd")
	for name, c := range map[string]struct{ unit, dropIn, want string }{
		"an unknown key":           {"[Service]\nExecStart=/usr/bin/containerd\nRestrat=always\n", text, "Restrat"},
		"a value that is none":     {"[Service]\nExecStart=/usr/bin/containerd\nMemoryMax=64Q\n", text, "64Q"},
		"a program that is absent": {"[Service]\nExecStart=/usr/bin/containerd\nExecReload=/usr/bin/none\n", text, "/usr/bin/none"},
		"a drop-in with a fault":   {containerd, strings.Replace(text, "ExecStart=/", "ExecStart=\"/", 1), filepath.Base(path)},
		"a drop-in without reset":  {containerd, strings.Replace(text, "ExecStart=\n", "", 1), "more than one ExecStart="},
	} {
		root := node(t, "/usr/bin/containerd")
		write(t, root, admin+"containerd.service", c.unit, 0o644)
		write(t, root, path, c.dropIn, 0o644)
		if said := verify(t, root, "containerd.service"); !strings.Contains(said, c.want) {
			t.Errorf("%s: it says %q", name, said)
		}
	}
}
