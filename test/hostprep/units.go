package hostprep

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	unitFolder  = "/run/fairlead-test/units"
	emptyFolder = "/run/fairlead-test/empty"
)

// writeUnits writes all units that there are, so that none of the host's
// services starts: one that runs the command, the message bus, and those on which
// a transient unit depends.
func writeUnits(dir string, command []string) error {
	bare := "[Unit]\nDefaultDependencies=no\n"
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	files := map[string]string{
		"/run/systemd/system.conf.d/test.conf": "[Manager]\nLogTarget=kmsg\nDefaultTimeoutStopSec=5s\n",
		unitFolder + "/sysinit.target":         bare,
		unitFolder + "/basic.target":           bare,
		unitFolder + "/shutdown.target":        bare,
		unitFolder + "/test.target":            bare + "Requires=test.service\nWants=dbus.socket\n",
		unitFolder + "/dbus.socket":            bare + "[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
		unitFolder + "/dbus.service": bare + "Requires=dbus.socket\n[Service]\nType=notify\nNotifyAccess=main\n" +
			"ExecStart=" + dbusProgram + " --system --address=systemd: --nofork --nopidfile --systemd-activation --syslog-only\n",
		// The end of this service is that of systemd, with its status.
		unitFolder + "/test.service": bare + "SuccessAction=exit-force\nFailureAction=exit-force\n[Service]\n" +
			"ExecStart=:" + words(command) + "\n" +
			"WorkingDirectory=" + literal(wd) + "\n" +
			"PassEnvironment=" + strings.Join(names(), " ") + "\n" +
			"Delegate=yes\nTasksMax=infinity\nLimitNOFILE=65536\n" +
			"StandardOutput=append:" + literal(dir) + "/output\nStandardError=inherit\n",
	}
	if err := os.MkdirAll(emptyFolder, 0o755); err != nil {
		return err
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write a unit: %w", err)
		}
	}
	return nil
}

// literal keeps a text of a unit from being expanded.
func literal(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// words are a command line of a unit, in which nothing is expanded.
func words(command []string) string {
	var b strings.Builder
	for i, word := range command {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, "\n", `\n`).Replace(word) + `"`)
	}
	return b.String()
}

// forService says whether a variable goes on to the service.
func forService(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	switch name {
	case systemdFolder, systemdCgroup, inside, "NOTIFY_SOCKET":
		return false
	}
	return true
}

// names are those of the variables that go on to the service.
func names() (out []string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); forService(v) {
			out = append(out, name)
		}
	}
	return out
}
