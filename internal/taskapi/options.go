package taskapi

// RuncOptions are those of runc's shim.
type RuncOptions struct {
	BinaryName    string // the OCI runtime, "runc" on PATH if empty
	Root          string // its state
	ShimCgroup    string
	NoPivotRoot   bool
	NoNewKeyring  bool
	SystemdCgroup bool
}

// Encode is the message containerd.runc.v1.Options.
func (o RuncOptions) Encode() Any {
	var m message
	m.flag(1, o.NoPivotRoot)
	m.flag(2, o.NoNewKeyring)
	m.text(3, o.ShimCgroup)
	m.text(6, o.BinaryName)
	m.text(7, o.Root)
	m.flag(9, o.SystemdCgroup)
	return Any{"containerd.runc.v1.Options", m}
}

// FileOptions are those of any other shim: a file, or else its content, and the
// name of what is in it.
type FileOptions struct {
	Type string
	Path string
	Body []byte
}

// Encode is the message runtimeoptions.v1.Options.
func (o FileOptions) Encode() Any {
	var m message
	m.text(1, o.Type)
	m.text(2, o.Path)
	m.bytes(3, o.Body)
	return Any{"runtimeoptions.v1.Options", m}
}
