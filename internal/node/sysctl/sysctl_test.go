package sysctl

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, sysctl string
		allowed      []string
		network, ipc bool
		want         string // in the error; empty for none
	}{
		{name: "safe", sysctl: "kernel.shm_rmid_forced"},
		{name: "safe, with slashes", sysctl: "net/ipv4/tcp_syncookies"},
		{name: "unsafe", sysctl: "kernel.msgmax", want: `"kernel.msgmax" not allowlisted`},
		{name: "unsafe and allowed", sysctl: "kernel.msgmax", allowed: []string{"kernel.msg*"}},
		{name: "allowed with slashes", sysctl: "net.core.somaxconn", allowed: []string{"net/core/somaxconn"}},
		{name: "another one is allowed", sysctl: "net.core.somaxconn2", allowed: []string{"net.core.somaxconn"}, want: "not allowlisted"},
		{name: "of an interface with a dot", sysctl: "net/ipv4/conf/eth0.1/forwarding", allowed: []string{"net.ipv4.conf.eth0/1.*"}},
		{name: "the machine's", sysctl: "vm.swappiness", want: "not allowlisted"},
		{name: "with the host's network", sysctl: "net.ipv4.tcp_syncookies", network: true, want: "host's network namespace"},
		{name: "with the host's IPC", sysctl: "kernel.shm_rmid_forced", ipc: true, want: "host's IPC namespace"},
		{name: "with the other of the host's", sysctl: "kernel.shm_rmid_forced", network: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := New(c.allowed)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: c.network, HostIPC: c.ipc, SecurityContext: &corev1.PodSecurityContext{
				Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ping_group_range"}, {Name: c.sysctl}},
			}}}
			if c.network { // the first one alone would be the reason
				pod.Spec.SecurityContext.Sysctls = pod.Spec.SecurityContext.Sysctls[1:]
			}
			err = a.Check(pod)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want it to say %q", err, c.want)
			}
		})
	}
	if err := (Allowed{}).Check(&corev1.Pod{}); err != nil {
		t.Errorf("a pod that sets nothing: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, pattern := range []string{"", "*", "vm.swappiness", "kernel.*", "net", "net..core", "net.*.forwarding", "Net.core.somaxconn"} {
		if _, err := New([]string{pattern}); err == nil {
			t.Errorf("%q was allowed", pattern)
		}
	}
}
