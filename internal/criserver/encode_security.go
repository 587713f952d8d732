package criserver

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

func encodePodSecurity(s *pod.Security) *cri.LinuxSandboxSecurityContext {
	return &cri.LinuxSandboxSecurityContext{
		NamespaceOptions:         encodeNamespaces(&s.Namespaces),
		SelinuxOptions:           encodeSELinux(s.SELinux),
		RunAsUser:                encodeID(s.Identity.UID),
		RunAsGroup:               encodeID(s.Identity.GID),
		ReadonlyRootfs:           s.ReadOnlyRootfs,
		SupplementalGroups:       s.Identity.SupplementalGroups,
		SupplementalGroupsPolicy: groupPoliciesOut[s.Identity.GroupsPolicy],
		Privileged:               s.Privileged,
		Seccomp:                  encodeProfile(s.Seccomp),
		Apparmor:                 encodeProfile(s.AppArmor),
	}
}

func encodeContainerSecurity(s *pod.Security) *cri.LinuxContainerSecurityContext {
	out := &cri.LinuxContainerSecurityContext{
		Privileged:               s.Privileged,
		NamespaceOptions:         encodeNamespaces(&s.Namespaces),
		SelinuxOptions:           encodeSELinux(s.SELinux),
		RunAsUser:                encodeID(s.Identity.UID),
		RunAsGroup:               encodeID(s.Identity.GID),
		RunAsUsername:            s.Identity.Username,
		ReadonlyRootfs:           s.ReadOnlyRootfs,
		SupplementalGroups:       s.Identity.SupplementalGroups,
		SupplementalGroupsPolicy: groupPoliciesOut[s.Identity.GroupsPolicy],
		NoNewPrivs:               s.NoNewPrivileges,
		MaskedPaths:              s.MaskedPaths,
		ReadonlyPaths:            s.ReadOnlyPaths,
		Seccomp:                  encodeProfile(s.Seccomp),
		Apparmor:                 encodeProfile(s.AppArmor),
	}
	if c := s.Capabilities; c != nil {
		out.Capabilities = &cri.Capability{AddCapabilities: c.Add, DropCapabilities: c.Drop, AddAmbientCapabilities: c.Ambient}
	}
	return out
}

func encodeNamespaces(n *pod.Namespaces) *cri.NamespaceOption {
	out := &cri.NamespaceOption{
		Network:  namespaceModesOut[n.Network],
		Pid:      namespaceModesOut[n.PID],
		Ipc:      namespaceModesOut[n.IPC],
		TargetId: n.TargetID,
	}
	if u := n.User; u != nil {
		out.UsernsOptions = &cri.UserNamespace{
			Mode: namespaceModesOut[u.Mode],
			Uids: encodeIDMappings(u.UIDs),
			Gids: encodeIDMappings(u.GIDs),
		}
	}
	return out
}

func encodeIDMappings(list []pod.IDMapping) []*cri.IDMapping {
	var out []*cri.IDMapping
	for _, m := range list {
		out = append(out, &cri.IDMapping{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length})
	}
	return out
}

func encodeID(v *int64) *cri.Int64Value {
	if v == nil {
		return nil
	}
	return &cri.Int64Value{Value: *v}
}

func encodeProfile(p *pod.Profile) *cri.SecurityProfile {
	if p == nil {
		return nil
	}
	return &cri.SecurityProfile{ProfileType: profileTypesOut[p.Type], LocalhostRef: p.Ref}
}

func encodeSELinux(o *pod.SELinuxOptions) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
