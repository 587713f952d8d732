package cgroups

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNames(t *testing.T) {
	const uid = "0e0b3d9f-6f0d-4a0c-9d3e-0123456789ab"
	for _, tt := range []struct {
		driver       Driver
		root         []string
		class        corev1.PodQOSClass
		parent, dir  string
		tier, folder string
	}{
		{Cgroupfs, nil, corev1.PodQOSGuaranteed, "/kubepods/pod" + uid, "/kubepods/pod" + uid, "/kubepods", "pod" + uid},
		{Cgroupfs, nil, corev1.PodQOSBurstable, "/kubepods/burstable/pod" + uid, "/kubepods/burstable/pod" + uid, "/kubepods/burstable", "pod" + uid},
		{Cgroupfs, []string{"a-b", "c"}, corev1.PodQOSBestEffort, "/a-b/c/kubepods/besteffort/pod" + uid, "/a-b/c/kubepods/besteffort/pod" + uid, "/a-b/c/kubepods/besteffort", "pod" + uid},
		{
			Systemd, nil, corev1.PodQOSGuaranteed, "kubepods-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
			"/kubepods.slice/kubepods-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice", "/kubepods.slice", "kubepods-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
		},
		{
			Systemd, nil, corev1.PodQOSBurstable, "kubepods-burstable-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
			"/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
		},
		{
			Systemd,
			[]string{"a-b"},
			corev1.PodQOSBestEffort, "a_b-kubepods-besteffort-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
			"/a_b.slice/a_b-kubepods.slice/a_b-kubepods-besteffort.slice/a_b-kubepods-besteffort-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
			"/a_b.slice/a_b-kubepods.slice/a_b-kubepods-besteffort.slice", "a_b-kubepods-besteffort-pod0e0b3d9f_6f0d_4a0c_9d3e_0123456789ab.slice",
		},
	} {
		m := &Manager{driver: tt.driver, top: append(name(tt.root), top)}
		pod := &corev1.Pod{}
		pod.UID, pod.Status.QOSClass = uid, tt.class
		if got := m.Parent(pod); got != tt.parent {
			t.Errorf("%s %s: parent %s, want %s", tt.driver, tt.class, got, tt.parent)
		}
		if got := m.podName(pod).in(tt.driver); got != tt.dir {
			t.Errorf("%s %s: folder %s, want %s", tt.driver, tt.class, got, tt.dir)
		}
		if got := m.tier(tt.class).in(tt.driver); got != tt.tier {
			t.Errorf("%s %s: tier %s, want %s", tt.driver, tt.class, got, tt.tier)
		}
		if got, ok := m.uidOf(m.tier(tt.class), tt.folder); !ok || got != uid {
			t.Errorf("%s %s: read %s as %q", tt.driver, tt.class, tt.folder, got)
		}
	}
}

func TestFoldersThatAreNoPods(t *testing.T) {
	fs := &Manager{driver: Cgroupfs, top: name{top}}
	sd := &Manager{driver: Systemd, top: name{top}}
	for _, tt := range []struct {
		m      *Manager
		folder string
	}{
		{fs, "burstable"},
		{fs, "pod"},
		{fs, "crio-123"},
		{sd, "kubepods-burstable.slice"},
		{sd, "kubepods-pod.slice"},
		{sd, "podx"},
		{sd, "kubepods-burstable-podx.slice"},
	} {
		if uid, ok := tt.m.uidOf(tt.m.tier(corev1.PodQOSGuaranteed), tt.folder); ok {
			t.Errorf("%s: read %s as pod %q", tt.m.driver, tt.folder, uid)
		}
	}
}

type answers struct {
	response *runtimeapi.RuntimeConfigResponse
	err      error
}

func (a answers) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest, ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	return a.response, a.err
}

func TestDriverOf(t *testing.T) {
	linux := func(d runtimeapi.CgroupDriver) *runtimeapi.RuntimeConfigResponse {
		return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: d}}
	}
	for _, tt := range []struct {
		name string
		answers
		want Driver
		err  string
	}{
		{"systemd", answers{response: linux(runtimeapi.CgroupDriver_SYSTEMD)}, Systemd, ""},
		{"cgroupfs", answers{response: linux(runtimeapi.CgroupDriver_CGROUPFS)}, Cgroupfs, ""},
		{"old", answers{err: status.Error(codes.Unimplemented, "unknown method")}, Systemd, ""},
		{"not told", answers{response: &runtimeapi.RuntimeConfigResponse{}}, Systemd, ""},
		{"broken", answers{err: errors.New("gone")}, "", "ask the runtime for its cgroup driver: gone"},
	} {
		got, err := DriverOf(t.Context(), tt.answers, Systemd)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
	if _, err := ParseDriver("upstart"); err == nil || !strings.Contains(err.Error(), "use cgroupfs or systemd") {
		t.Errorf("an unknown driver: %v", err)
	}
}
