package layer

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/pkg/archive"
)

// ApplyChanges unpacks an archive that is not compressed over a mounted root file
// system, which what it deletes is deleted from. It may do no more to the node
// than one layer of an image. Of Options it uses Dir and Limits.
func ApplyChanges(ctx context.Context, dir string, tarball io.Reader, o Options) error {
	watch := newWatch(o.bound(), newPace(), ctx.Err)
	_, err := archive.Apply(ctx, dir, &cappedReader{r: tarball, watch: watch}, archive.WithFilter(newEntryScan(watch).visit))
	if err == nil {
		err = watch.look()
	}
	if err != nil {
		return fmt.Errorf("unpack the changes of a root file system: %w", err)
	}
	return nil
}
