package check

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/node/manifest/care"
)

// containerCheck checks the containers of one pod, one after the other.
type containerCheck struct {
	*faults
	spec  *corev1.PodSpec
	names map[string]bool
	ports map[string]bool // host ports that are taken
}

func (c *containerCheck) check(at string, ct *corev1.Container, init bool) {
	c.all(at+".name", ct.Name, validation.IsDNS1123Label(ct.Name))
	if c.names[ct.Name] {
		c.add(at+".name", "%q is the name of an earlier container", ct.Name)
	}
	c.names[ct.Name] = true
	checkImage(c.faults, at+".image", ct.Image)
	oneOf(c.faults, at+".imagePullPolicy", ct.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	oneOf(c.faults, at+".terminationMessagePolicy", ct.TerminationMessagePolicy, corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	if p := ct.TerminationMessagePath; p != "" && !path.IsAbs(p) {
		c.add(at+".terminationMessagePath", "%q is not an absolute path", p)
	}
	if ct.WorkingDir != "" && !path.IsAbs(ct.WorkingDir) {
		c.add(at+".workingDir", "%q is not an absolute path", ct.WorkingDir)
	}
	c.checkRestarts(at, ct)
	if init && !sidecar(ct) {
		for i, p := range ct.Ports {
			if p.HostPort != 0 {
				c.add(fmt.Sprintf("%s.ports[%d].hostPort", at, i), "an init container cannot publish a port")
			}
		}
	}
	c.checkPorts(at+".ports", ct.Ports)
	if init && !sidecar(ct) {
		*c.faults = append(*c.faults, care.Forbidden(at, ct)...)
	} else {
		*c.faults = append(*c.faults, care.Check(at, ct, c.spec)...)
	}
	c.checkEnv(at, ct)
	c.checkResources(at+".resources", ct.Resources)
	c.checkMounts(at+".volumeMounts", ct)
	c.checkSecurity(at+".securityContext", ct.SecurityContext)
}

func sidecar(ct *corev1.Container) bool {
	return ct.RestartPolicy != nil && *ct.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// mostRules and mostCodes are the bounds of restartPolicyRules (KEP-5307).
const (
	mostRules = 20
	mostCodes = 255
)

func (c *containerCheck) checkRestarts(at string, ct *corev1.Container) {
	if ct.RestartPolicy != nil {
		oneOf(c.faults, at+".restartPolicy", *ct.RestartPolicy, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)
	}
	if len(ct.RestartPolicyRules) > 0 && ct.RestartPolicy == nil {
		c.add(at+".restartPolicyRules", "needs a restartPolicy beside it, for exit codes that no rule has")
	}
	if len(ct.RestartPolicyRules) > mostRules {
		c.add(at+".restartPolicyRules", "there are %d, and at most %d are allowed", len(ct.RestartPolicyRules), mostRules)
	}
	for i, r := range ct.RestartPolicyRules {
		at := fmt.Sprintf("%s.restartPolicyRules[%d]", at, i)
		required(c.faults, at+".action", string(r.Action))
		oneOf(c.faults, at+".action", r.Action, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if r.ExitCodes == nil {
			c.add(at+".exitCodes", "is required")
			continue
		}
		required(c.faults, at+".exitCodes.operator", string(r.ExitCodes.Operator))
		oneOf(c.faults, at+".exitCodes.operator", r.ExitCodes.Operator, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(r.ExitCodes.Values); n == 0 || n > mostCodes {
			c.add(at+".exitCodes.values", "has %d codes, and needs between 1 and %d", n, mostCodes)
		}
	}
}

func checkImage(f *faults, at, name string) {
	switch {
	case name == "":
		f.add(at, "is required")
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		f.add(at, "%q holds a space or a control character", name)
	}
}

func (c *containerCheck) checkPorts(at string, ports []corev1.ContainerPort) {
	for i, p := range ports {
		at := fmt.Sprintf("%s[%d]", at, i)
		if p.ContainerPort < 1 || p.ContainerPort > 65535 {
			c.add(at+".containerPort", "%d is not between 1 and 65535", p.ContainerPort)
		}
		if p.HostPort < 0 || p.HostPort > 65535 {
			c.add(at+".hostPort", "%d is not between 1 and 65535", p.HostPort)
		}
		oneOf(c.faults, at+".protocol", p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if p.HostIP != "" {
			c.all(at+".hostIP", p.HostIP, ipProblems(p.HostIP))
		}
		if c.spec.HostNetwork && p.HostPort != 0 && p.HostPort != p.ContainerPort {
			c.add(at+".hostPort", "%d must be the containerPort %d: the pod has hostNetwork", p.HostPort, p.ContainerPort)
		}
		if p.HostPort == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", p.HostIP, p.Protocol, p.HostPort)
		if c.ports[key] {
			c.add(at+".hostPort", "%d is published twice", p.HostPort)
		}
		c.ports[key] = true
	}
}

func (c *containerCheck) checkEnv(at string, ct *corev1.Container) {
	for i, e := range ct.Env {
		at := fmt.Sprintf("%s.env[%d]", at, i)
		c.all(at+".name", e.Name, validation.IsRelaxedEnvVarName(e.Name))
		from := e.ValueFrom
		if from == nil {
			continue
		}
		sources := 0
		if r := from.ConfigMapKeyRef; r != nil {
			sources++
			required(c.faults, at+".valueFrom.configMapKeyRef.name", r.Name)
			required(c.faults, at+".valueFrom.configMapKeyRef.key", r.Key)
		}
		if r := from.SecretKeyRef; r != nil {
			sources++
			required(c.faults, at+".valueFrom.secretKeyRef.name", r.Name)
			required(c.faults, at+".valueFrom.secretKeyRef.key", r.Key)
		}
		if r := from.FieldRef; r != nil {
			sources++
			if !knownField(r.FieldPath, false) {
				c.add(at+".valueFrom.fieldRef.fieldPath", "%q is not a field that a variable can hold", r.FieldPath)
			}
		}
		if r := from.ResourceFieldRef; r != nil {
			sources++
			checkResourceField(c.faults, at+".valueFrom.resourceFieldRef", r)
		}
		if sources != 1 || e.Value != "" {
			c.add(at, "must have either a value or exactly one source in valueFrom")
		}
	}
	for i, e := range ct.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", at, i)
		if (e.ConfigMapRef == nil) == (e.SecretRef == nil) {
			c.add(at, "must have one of configMapRef and secretRef")
		}
	}
}

func (c *containerCheck) checkResources(at string, r corev1.ResourceRequirements) {
	for name, q := range r.Limits {
		checkQuantity(c.faults, at+".limits", name, q)
	}
	for name, q := range r.Requests {
		checkQuantity(c.faults, at+".requests", name, q)
		if limit, ok := r.Limits[name]; ok && q.Cmp(limit) > 0 && !isPages(name) {
			c.add(at+".requests."+string(name), "%s is more than the limit %s", q.String(), limit.String())
		}
	}
	checkHugePages(c.faults, at, r)
}

func (c *containerCheck) checkMounts(at string, ct *corev1.Container) {
	paths := map[string]bool{}
	for i, m := range ct.VolumeMounts {
		at := fmt.Sprintf("%s[%d]", at, i)
		v := slices.IndexFunc(c.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if v < 0 {
			c.add(at+".name", "%q is not the name of a volume of this pod", m.Name)
		}
		if !path.IsAbs(m.MountPath) || strings.Contains(m.MountPath, ":") {
			c.add(at+".mountPath", "%q is not an absolute path without colons", m.MountPath)
		}
		if paths[path.Clean(m.MountPath)] {
			c.add(at+".mountPath", "%q is used twice", m.MountPath)
		}
		paths[path.Clean(m.MountPath)] = true
		if m.SubPath != "" && !isLocal(m.SubPath) {
			c.add(at+".subPath", "%q is not a relative path without ..", m.SubPath)
		}
		if m.SubPathExpr != "" && !isLocal(m.SubPathExpr) {
			c.add(at+".subPathExpr", "%q is not a relative path without ..", m.SubPathExpr)
		}
		if m.SubPath != "" && m.SubPathExpr != "" {
			c.add(at+".subPathExpr", "does not go with subPath")
		}
		if r := m.RecursiveReadOnly; r != nil {
			oneOf(c.faults, at+".recursiveReadOnly", *r, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
			if *r != corev1.RecursiveReadOnlyDisabled && !m.ReadOnly {
				c.add(at+".recursiveReadOnly", "needs readOnly")
			}
		}
		if p := m.MountPropagation; p != nil {
			oneOf(c.faults, at+".mountPropagation", *p, corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
			if *p == corev1.MountPropagationBidirectional && !privileged(ct) {
				c.add(at+".mountPropagation", "Bidirectional needs a privileged container")
			}
			if *p == corev1.MountPropagationBidirectional && v >= 0 && c.spec.Volumes[v].Image != nil {
				c.add(at+".mountPropagation", "is Bidirectional, and nothing can be mounted in an image")
			}
		}
	}
}

func privileged(ct *corev1.Container) bool {
	return ct.SecurityContext != nil && ct.SecurityContext.Privileged != nil && *ct.SecurityContext.Privileged
}

func (c *containerCheck) checkSecurity(at string, sc *corev1.SecurityContext) {
	if sc == nil {
		return
	}
	checkID(c.faults, at+".runAsUser", sc.RunAsUser)
	checkID(c.faults, at+".runAsGroup", sc.RunAsGroup)
	checkProfiles(c.faults, at, sc.SeccompProfile, sc.AppArmorProfile)
	if sc.ProcMount != nil {
		oneOf(c.faults, at+".procMount", *sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
	}
	if e := sc.AllowPrivilegeEscalation; e != nil && !*e {
		c.checkNoEscalation(at+".allowPrivilegeEscalation", sc)
	}
}

func (c *containerCheck) checkNoEscalation(at string, sc *corev1.SecurityContext) {
	if sc.Privileged != nil && *sc.Privileged {
		c.add(at, "cannot be false for a privileged container")
	}
	if sc.Capabilities == nil {
		return
	}
	for _, add := range sc.Capabilities.Add {
		if strings.TrimPrefix(strings.ToUpper(string(add)), "CAP_") == "SYS_ADMIN" {
			c.add(at, "cannot be false with the capability SYS_ADMIN")
		}
	}
}
