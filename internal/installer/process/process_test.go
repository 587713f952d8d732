package process

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What runs on the node has the node's root, as what it was told are paths of it.
func TestCommandsRunOnTheNode(t *testing.T) {
	cmd := Command(t.Context(), "/host", "/usr/bin/x", "a")
	if cmd.Path != "/usr/bin/x" || cmd.SysProcAttr == nil || cmd.SysProcAttr.Chroot != "/host" {
		t.Errorf("%+v", cmd)
	}
	if cmd := Command(t.Context(), "/", "/usr/bin/x"); cmd.SysProcAttr != nil {
		t.Errorf("%+v", cmd)
	}
}

func TestOfThisProcess(t *testing.T) {
	here, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if dir := filepath.Dir(here); !Runnable(here) || !AnyFrom("/none", dir) || AnyFrom("/none", dir[:len(dir)-1]) || Runnable(dir) {
		t.Errorf("%s is not seen to run", here)
	}
	began, err := Started(os.Getpid())
	if age := time.Since(began); err != nil || age < -time.Minute || age > time.Hour {
		t.Errorf("it began %v ago: %v", age, err)
	}
	if _, err := Started(-1); err == nil {
		t.Error("a process that is not there has begun")
	}
}
