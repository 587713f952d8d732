package criserver

import "fairlead.run/internal/lifecycle"

var (
	_ Pods       = (*lifecycle.Core)(nil)
	_ Containers = (*lifecycle.Core)(nil)
)
