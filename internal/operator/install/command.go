package install

import (
	"path"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// arguments are those of the installer: the one place that knows its command line.
func (o *Order) arguments(work names.PhaseOf) []string {
	args := []string{
		"install", "--payload", "/", "--settings", path.Join(settingsDir, settingsFile), "--host", hostDir,
		"--binary-path", o.Runtime.Spec.BinaryPath, "--cri", string(o.CRI),
	}
	method := o.Restart.Method
	if method == "" {
		method = v1alpha1.RestartAuto
	}
	args = append(args, "--restart", string(method))
	for _, word := range o.Restart.Command {
		args = append(args, "--restart-command", word)
	}
	if work == names.Cleanup {
		return append(args, "--remove", "--stay") // whichever node it is
	}
	if o.Image != "" {
		args = append(args, "--machine-image", o.Image)
	}
	return append(args, "--stay")
}
