package criserver

import (
	"fmt"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

var namespaceModes = map[cri.NamespaceMode]pod.NamespaceMode{
	cri.NamespaceMode_POD:       pod.NamespacePod,
	cri.NamespaceMode_CONTAINER: pod.NamespaceContainer,
	cri.NamespaceMode_NODE:      pod.NamespaceNode,
	cri.NamespaceMode_TARGET:    pod.NamespaceTarget,
}

var groupPolicies = map[cri.SupplementalGroupsPolicy]pod.GroupsPolicy{
	cri.SupplementalGroupsPolicy_Merge:  pod.GroupsMerge,
	cri.SupplementalGroupsPolicy_Strict: pod.GroupsStrict,
}

var profileTypes = map[cri.SecurityProfile_ProfileType]pod.ProfileType{
	cri.SecurityProfile_RuntimeDefault: pod.ProfileRuntimeDefault,
	cri.SecurityProfile_Unconfined:     pod.ProfileUnconfined,
	cri.SecurityProfile_Localhost:      pod.ProfileLocalhost,
}

var (
	namespaceModesOut = reverse(namespaceModes)
	groupPoliciesOut  = reverse(groupPolicies)
	profileTypesOut   = reverse(profileTypes)
)

func (d *decoder) podSecurity(field string, c *cri.LinuxSandboxSecurityContext) pod.Security {
	if c == nil {
		return pod.Security{}
	}
	if c.GetRunAsGroup() != nil && c.GetRunAsUser() == nil {
		d.fail(field+".run_as_group", "is set without run_as_user")
	}
	return pod.Security{
		Namespaces: d.namespaces(field+".namespace_options", c.GetNamespaceOptions()),
		Privileged: c.GetPrivileged(),
		Identity: pod.Identity{
			UID:                d.optionalID(field+".run_as_user", c.GetRunAsUser()),
			GID:                d.optionalID(field+".run_as_group", c.GetRunAsGroup()),
			SupplementalGroups: d.groups(field+".supplemental_groups", c.GetSupplementalGroups()),
			GroupsPolicy:       lookup(d, field+".supplemental_groups_policy", groupPolicies, c.GetSupplementalGroupsPolicy()),
		},
		ReadOnlyRootfs: c.GetReadonlyRootfs(),
		//lint:ignore SA1019 old callers send only this
		Seccomp:  d.profile(field+".seccomp", c.GetSeccomp(), c.GetSeccompProfilePath()),
		AppArmor: d.profile(field+".apparmor", c.GetApparmor(), ""),
		SELinux:  d.selinux(field+".selinux_options", c.GetSelinuxOptions()),
	}
}

func (d *decoder) containerSecurity(field string, c *cri.LinuxContainerSecurityContext) pod.Security {
	if c == nil {
		return pod.Security{}
	}
	switch {
	case c.GetRunAsUser() != nil && c.GetRunAsUsername() != "":
		d.fail(field+".run_as_username", "is set beside run_as_user; only one may be")
	case c.GetRunAsGroup() != nil && c.GetRunAsUser() == nil && c.GetRunAsUsername() == "":
		d.fail(field+".run_as_group", "is set without run_as_user or run_as_username")
	}
	return pod.Security{
		Namespaces: d.namespaces(field+".namespace_options", c.GetNamespaceOptions()),
		Privileged: c.GetPrivileged(),
		Identity: pod.Identity{
			UID:                d.optionalID(field+".run_as_user", c.GetRunAsUser()),
			Username:           d.text(field+".run_as_username", c.GetRunAsUsername()),
			GID:                d.optionalID(field+".run_as_group", c.GetRunAsGroup()),
			SupplementalGroups: d.groups(field+".supplemental_groups", c.GetSupplementalGroups()),
			GroupsPolicy:       lookup(d, field+".supplemental_groups_policy", groupPolicies, c.GetSupplementalGroupsPolicy()),
		},
		ReadOnlyRootfs:  c.GetReadonlyRootfs(),
		NoNewPrivileges: c.GetNoNewPrivs(),
		Capabilities:    d.capabilities(field+".capabilities", c.GetCapabilities()),
		MaskedPaths:     d.texts(field+".masked_paths", c.GetMaskedPaths()),
		ReadOnlyPaths:   d.texts(field+".readonly_paths", c.GetReadonlyPaths()),
		//lint:ignore SA1019 old callers send only this
		Seccomp: d.profile(field+".seccomp", c.GetSeccomp(), c.GetSeccompProfilePath()),
		//lint:ignore SA1019 old callers send only this
		AppArmor: d.profile(field+".apparmor", c.GetApparmor(), c.GetApparmorProfile()),
		SELinux:  d.selinux(field+".selinux_options", c.GetSelinuxOptions()),
	}
}

func (d *decoder) namespaces(field string, n *cri.NamespaceOption) pod.Namespaces {
	if n == nil {
		return pod.Namespaces{}
	}
	out := pod.Namespaces{
		Network:  lookup(d, field+".network", namespaceModes, n.GetNetwork()),
		PID:      lookup(d, field+".pid", namespaceModes, n.GetPid()),
		IPC:      lookup(d, field+".ipc", namespaceModes, n.GetIpc()),
		TargetID: d.text(field+".target_id", n.GetTargetId()),
	}
	if out.PID == pod.NamespaceTarget && out.TargetID == "" {
		d.fail(field+".target_id", "is required with pid: TARGET")
	}
	for name, mode := range map[string]pod.NamespaceMode{"network": out.Network, "ipc": out.IPC} {
		if mode == pod.NamespaceTarget || mode == pod.NamespaceContainer {
			d.fail(field+"."+name, "is %s; only POD and NODE are possible", strings.ToUpper(string(mode)))
		}
	}
	if u := n.GetUsernsOptions(); u != nil {
		out.User = d.userNamespace(field+".userns_options", u)
	}
	return out
}

func (d *decoder) userNamespace(field string, u *cri.UserNamespace) *pod.UserNamespace {
	out := &pod.UserNamespace{
		Mode: lookup(d, field+".mode", namespaceModes, u.GetMode()),
		UIDs: decodeIDMappings(u.GetUids()),
		GIDs: decodeIDMappings(u.GetGids()),
	}
	if out.Mode != pod.NamespacePod && out.Mode != pod.NamespaceNode {
		d.fail(field+".mode", "is %s; only POD and NODE are possible", strings.ToUpper(string(out.Mode)))
	}
	return out
}

func decodeIDMappings(list []*cri.IDMapping) []pod.IDMapping {
	var out []pod.IDMapping
	for _, m := range list {
		out = append(out, pod.IDMapping{HostID: m.GetHostId(), ContainerID: m.GetContainerId(), Length: m.GetLength()})
	}
	return out
}

func (d *decoder) optionalID(field string, v *cri.Int64Value) *int64 {
	if v == nil {
		return nil
	}
	id := d.id(field, v.GetValue())
	return &id
}

func (d *decoder) groups(field string, list []int64) []int64 {
	for i, g := range list {
		d.id(fmt.Sprintf("%s[%d]", field, i), g)
	}
	return list
}

func (d *decoder) capabilities(field string, c *cri.Capability) *pod.Capabilities {
	if c == nil {
		return nil
	}
	return &pod.Capabilities{
		Add:     d.texts(field+".add_capabilities", c.GetAddCapabilities()),
		Drop:    d.texts(field+".drop_capabilities", c.GetDropCapabilities()),
		Ambient: d.texts(field+".add_ambient_capabilities", c.GetAddAmbientCapabilities()),
	}
}

// profile decodes a security profile, or else the deprecated path that old
// callers send.
func (d *decoder) profile(field string, p *cri.SecurityProfile, path string) *pod.Profile {
	if p != nil {
		out := &pod.Profile{
			Type: lookup(d, field+".profile_type", profileTypes, p.GetProfileType()),
			// Some callers write the prefix of the deprecated path here, too.
			Ref: strings.TrimPrefix(d.text(field+".localhost_ref", p.GetLocalhostRef()), "localhost/"),
		}
		if (out.Type == pod.ProfileLocalhost) != (out.Ref != "") {
			d.fail(field+".localhost_ref", "must be set with the profile type Localhost, and only then")
		}
		return out
	}
	ref, local := strings.CutPrefix(path, "localhost/")
	switch {
	case path == "":
		return nil
	case path == "runtime/default", path == "docker/default":
		return &pod.Profile{Type: pod.ProfileRuntimeDefault}
	case path == "unconfined":
		return &pod.Profile{Type: pod.ProfileUnconfined}
	case local && ref != "":
		return &pod.Profile{Type: pod.ProfileLocalhost, Ref: d.text(field, ref)}
	}
	d.fail(field, "is given as %q; it can be runtime/default, unconfined or localhost/NAME", path)
	return nil
}

func (d *decoder) selinux(field string, o *cri.SELinuxOption) *pod.SELinuxOptions {
	if o == nil {
		return nil
	}
	return &pod.SELinuxOptions{
		User:  d.text(field+".user", o.GetUser()),
		Role:  d.text(field+".role", o.GetRole()),
		Type:  d.text(field+".type", o.GetType()),
		Level: d.text(field+".level", o.GetLevel()),
	}
}
