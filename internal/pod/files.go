package pod

import "cmp"

// The files in Sandbox.FilesDir that every container of the pod sees, unless it
// mounts something else there.
const (
	FileResolvConf = "resolv.conf" // /etc/resolv.conf
	FileHosts      = "hosts"       // /etc/hosts
	FileHostname   = "hostname"    // /etc/hostname
)

// FilesDir is the folder of the files that the pod's containers share. Pods of
// builds that had no Files have them in Dir.
func (s *Sandbox) FilesDir() string { return cmp.Or(s.Files, s.Dir) }
