package pod

// The files in Sandbox.Dir that every container of the pod sees, unless it
// mounts something else there.
const (
	FileResolvConf = "resolv.conf" // /etc/resolv.conf
	FileHosts      = "hosts"       // /etc/hosts
	FileHostname   = "hostname"    // /etc/hostname
)
