package layer

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow bounds the memory that a zstd stream may ask for; the format would
// allow terabytes, and encoders stay below 128 MiB.
const zstdWindow = 128 << 20

// Decompress goes by the content and not by the declared type: there are
// registries full of layers that say one thing and are another. It runs in this
// process; containerd's own would start unpigz where it finds it.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	head, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(br)
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), isSkippableFrame(head):
		d, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(br), nil
}

// isSkippableFrame recognises a zstd stream that begins with metadata, as
// seekable and estargz-like encoders write it: 0x184D2A50 to 0x184D2A5F.
func isSkippableFrame(head []byte) bool {
	return len(head) == 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18
}
