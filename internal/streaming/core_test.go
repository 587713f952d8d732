package streaming

import "fairlead.run/internal/lifecycle"

var _ Core = (*lifecycle.Core)(nil)
