package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageFsInfo says what the images take. Containers write to the same file
// system, so that there is none of their own to tell about.
func (s *Server) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	u, err := s.cfg.Images.Usage(ctx)
	if err != nil {
		return nil, err
	}
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{
		Timestamp:  s.now().UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: u.Path},
		UsedBytes:  &cri.UInt64Value{Value: uint64(max(u.Bytes, 0))},
		InodesUsed: &cri.UInt64Value{Value: uint64(max(u.Inodes, 0))},
	}}}, nil
}
