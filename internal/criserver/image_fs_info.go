package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// ImageFsInfo says what the images take, and what containers have written. Both
// have the same mount point where they are on the same file system: by that a
// kubelet tells whether it has to watch over two.
func (s *Server) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	u, err := s.cfg.Images.Usage(ctx)
	if err != nil {
		return nil, err
	}
	images := pod.LayerUsage{At: s.now(), Path: u.Path, Bytes: uint64(max(u.Bytes, 0)), Inodes: uint64(max(u.Inodes, 0))}
	var ids []pod.ContainerID
	for _, p := range s.cfg.Pods.Pods() {
		for _, c := range p.Containers {
			ids = append(ids, c.ID)
		}
	}
	written := s.cfg.Stats.Written(ctx, ids)
	return &cri.ImageFsInfoResponse{
		ImageFilesystems:     []*cri.FilesystemUsage{encodeFilesystem(&images)},
		ContainerFilesystems: []*cri.FilesystemUsage{encodeFilesystem(&written)},
	}, nil
}

func encodeFilesystem(u *pod.LayerUsage) *cri.FilesystemUsage {
	return &cri.FilesystemUsage{
		Timestamp:  u.At.UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: u.Path},
		UsedBytes:  &cri.UInt64Value{Value: u.Bytes},
		InodesUsed: &cri.UInt64Value{Value: u.Inodes},
	}
}
