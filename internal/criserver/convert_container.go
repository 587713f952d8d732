package criserver

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

func (d *decoder) containerConfig(field string, c *cri.ContainerConfig) pod.ContainerConfig {
	if c == nil {
		d.fail(field, "is required")
		return pod.ContainerConfig{}
	}
	if c.GetWindows() != nil {
		d.fail(field+".windows", "is set, but this node runs Linux")
	}
	out := pod.ContainerConfig{
		Image:       d.image(field+".image", c.GetImage()),
		Process:     d.process(field, c),
		Labels:      c.GetLabels(),
		Annotations: c.GetAnnotations(),
		LogPath:     d.logPath(field+".log_path", c.GetLogPath()),
		Resources:   d.resources(field+".linux.resources", c.GetLinux().GetResources()),
		Security:    d.containerSecurity(field+".linux.security_context", c.GetLinux().GetSecurityContext()),
		StopSignal:  d.signal(field+".stop_signal", c.GetStopSignal()),
	}
	if m := c.GetMetadata(); m == nil {
		d.fail(field+".metadata", "is required")
	} else {
		out.Metadata = pod.ContainerMetadata{Name: d.required(field+".metadata.name", m.GetName()), Attempt: m.GetAttempt()}
	}
	for i, m := range c.GetMounts() {
		out.Mounts = append(out.Mounts, d.mount(fmt.Sprintf("%s.mounts[%d]", field, i), m))
	}
	for i, v := range c.GetDevices() {
		out.Devices = append(out.Devices, d.device(fmt.Sprintf("%s.devices[%d]", field, i), v))
	}
	for i, v := range c.GetCDIDevices() {
		out.CDIDevices = append(out.CDIDevices, d.required(fmt.Sprintf("%s.CDI_devices[%d].name", field, i), v.GetName()))
	}
	return out
}

func (d *decoder) process(field string, c *cri.ContainerConfig) pod.Process {
	out := pod.Process{
		Command:    d.texts(field+".command", c.GetCommand()),
		Args:       d.texts(field+".args", c.GetArgs()),
		WorkingDir: d.text(field+".working_dir", c.GetWorkingDir()),
		Stdin:      c.GetStdin(),
		StdinOnce:  c.GetStdinOnce(),
		TTY:        c.GetTty(),
	}
	for i, e := range c.GetEnvs() {
		at := fmt.Sprintf("%s.envs[%d]", field, i)
		if strings.ContainsRune(e.GetKey(), '=') {
			d.fail(at+".key", "is %q; names of variables have no =", e.GetKey())
		}
		if !utf8.Valid(e.GetValue()) { // JSON, in which all of it travels, would change it
			d.fail(at+".value", "of %q is not valid UTF-8", e.GetKey())
		}
		out.Env = append(out.Env, pod.EnvVar{Name: d.required(at+".key", e.GetKey()), Value: d.text(at+".value", string(e.GetValue()))})
	}
	return out
}

func (d *decoder) image(field string, s *cri.ImageSpec) pod.ImageSpec {
	return pod.ImageSpec{
		Image:              d.required(field+".image", s.GetImage()),
		UserSpecifiedImage: s.GetUserSpecifiedImage(),
		RuntimeHandler:     s.GetRuntimeHandler(),
		Annotations:        s.GetAnnotations(),
	}
}

// logPath keeps the log inside the pod's log directory.
func (d *decoder) logPath(field, p string) string {
	if p == "" {
		return ""
	}
	if clean := path.Clean(p); path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") {
		d.fail(field, "is %q; it must be a path inside the pod's log_directory", p)
	}
	return d.text(field, p)
}

var propagations = map[cri.MountPropagation]pod.Propagation{
	cri.MountPropagation_PROPAGATION_PRIVATE:           pod.PropagationPrivate,
	cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: pod.PropagationHostToContainer,
	cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:     pod.PropagationBidirectional,
}

var propagationsOut = reverse(propagations)

func (d *decoder) mount(field string, m *cri.Mount) pod.Mount {
	out := pod.Mount{
		ContainerPath:     d.required(field+".container_path", m.GetContainerPath()),
		HostPath:          d.absolute(field+".host_path", m.GetHostPath()),
		ReadOnly:          m.GetReadonly(),
		RecursiveReadOnly: m.GetRecursiveReadOnly(),
		SELinuxRelabel:    m.GetSelinuxRelabel(),
		Propagation:       lookup(d, field+".propagation", propagations, m.GetPropagation()),
		UIDMappings:       decodeIDMappings(m.GetUidMappings()),
		GIDMappings:       decodeIDMappings(m.GetGidMappings()),
		ImageSubPath:      d.text(field+".image_sub_path", m.GetImageSubPath()),
		Options:           d.texts(field+".mount_options", m.GetMountOptions()),
	}
	if out.RecursiveReadOnly && (!out.ReadOnly || out.Propagation != pod.PropagationPrivate) {
		d.fail(field+".recursive_read_only", "needs readonly, and propagation PROPAGATION_PRIVATE")
	}
	// An image spec that names no image is how old callers say "none".
	if img := m.GetImage(); img.GetImage() != "" {
		spec := d.image(field+".image", img)
		out.Image = &spec
	}
	switch {
	case out.Image != nil && out.HostPath != "":
		d.fail(field+".host_path", "is set beside image; only one may be")
	case out.Image != nil && !out.ReadOnly:
		d.fail(field+".readonly", "is not set; what is in an image can only be mounted so")
	case out.Image == nil && out.HostPath == "":
		d.fail(field+".host_path", "is required, unless image is set")
	case out.Image == nil && out.ImageSubPath != "":
		d.fail(field+".image_sub_path", "is set without image")
	}
	return out
}

func (d *decoder) device(field string, v *cri.Device) pod.Device {
	if strings.Trim(v.GetPermissions(), "rwm") != "" {
		d.fail(field+".permissions", "is %q; it is made of r, w and m", v.GetPermissions())
	}
	return pod.Device{
		ContainerPath: d.text(field+".container_path", v.GetContainerPath()),
		HostPath:      d.absolute(field+".host_path", d.required(field+".host_path", v.GetHostPath())),
		Permissions:   v.GetPermissions(),
	}
}

func encodeContainerConfig(c *pod.ContainerConfig) *cri.ContainerConfig {
	out := &cri.ContainerConfig{
		Metadata:    encodeContainerMetadata(c.Metadata),
		Image:       encodeImageSpec(&c.Image),
		Command:     c.Process.Command,
		Args:        c.Process.Args,
		WorkingDir:  c.Process.WorkingDir,
		Mounts:      encodeMounts(c.Mounts),
		Labels:      c.Labels,
		Annotations: c.Annotations,
		LogPath:     c.LogPath,
		Stdin:       c.Process.Stdin,
		StdinOnce:   c.Process.StdinOnce,
		Tty:         c.Process.TTY,
		Linux: &cri.LinuxContainerConfig{
			Resources:       encodeResources(c.Resources),
			SecurityContext: encodeContainerSecurity(&c.Security),
		},
		StopSignal: encodeSignal(c.StopSignal),
	}
	for _, e := range c.Process.Env {
		out.Envs = append(out.Envs, &cri.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	for _, v := range c.Devices {
		out.Devices = append(out.Devices, &cri.Device{ContainerPath: v.ContainerPath, HostPath: v.HostPath, Permissions: v.Permissions})
	}
	for _, name := range c.CDIDevices {
		out.CDIDevices = append(out.CDIDevices, &cri.CDIDevice{Name: name})
	}
	return out
}

func encodeContainerMetadata(m pod.ContainerMetadata) *cri.ContainerMetadata {
	return &cri.ContainerMetadata{Name: m.Name, Attempt: m.Attempt}
}

func encodeImageSpec(s *pod.ImageSpec) *cri.ImageSpec {
	return &cri.ImageSpec{
		Image:              s.Image,
		Annotations:        s.Annotations,
		UserSpecifiedImage: s.UserSpecifiedImage,
		RuntimeHandler:     s.RuntimeHandler,
	}
}

func encodeMounts(list []pod.Mount) []*cri.Mount {
	var out []*cri.Mount
	for i := range list {
		m := &list[i]
		c := &cri.Mount{
			ContainerPath:     m.ContainerPath,
			HostPath:          m.HostPath,
			Readonly:          m.ReadOnly,
			SelinuxRelabel:    m.SELinuxRelabel,
			Propagation:       propagationsOut[m.Propagation],
			UidMappings:       encodeIDMappings(m.UIDMappings),
			GidMappings:       encodeIDMappings(m.GIDMappings),
			RecursiveReadOnly: m.RecursiveReadOnly,
			ImageSubPath:      m.ImageSubPath,
			MountOptions:      m.Options,
		}
		if m.Image != nil {
			c.Image = encodeImageSpec(m.Image)
		}
		out = append(out, c)
	}
	return out
}
