package criserver

import "google.golang.org/protobuf/proto"

// maxPart is how many bytes of a list go into one message of a stream, which
// has one item at least. It is far below what any client takes.
const maxPart = 1 << 20

// inParts sends a list in messages that are not too large, and none for an
// empty list.
func inParts[T proto.Message](list []T, send func([]T) error) error {
	size, from := 0, 0
	for i, item := range list {
		n := proto.Size(item)
		if i > from && size+n > maxPart {
			if err := send(list[from:i]); err != nil {
				return err
			}
			size, from = 0, i
		}
		size += n
	}
	if from == len(list) {
		return nil
	}
	return send(list[from:])
}
