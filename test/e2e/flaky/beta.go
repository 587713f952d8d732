package flaky

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	newGroup = "node.k8s.io/v1"
	oldGroup = "node.k8s.io/v1beta1"
)

// aged has an answer be that of an API server before Kubernetes 1.20. RuntimeClasses
// have the same fields in v1 and v1beta1.
func aged(answer []byte) []byte {
	for _, key := range []string{"apiVersion", "groupVersion"} {
		answer = bytes.ReplaceAll(answer, []byte(`"`+key+`":"`+newGroup+`"`), []byte(`"`+key+`":"`+oldGroup+`"`))
	}
	// Where groups are listed.
	return bytes.ReplaceAll(answer, []byte(`"groupVersion":"`+oldGroup+`","version":"v1"`), []byte(`"groupVersion":"`+oldGroup+`","version":"v1beta1"`))
}

// modern is the reverse for requests, which may be protobuf: there the version is in an
// envelope.
func modern(request []byte) ([]byte, error) {
	magic := []byte("k8s\x00")
	if !bytes.HasPrefix(request, magic) {
		return bytes.ReplaceAll(request, []byte(`"apiVersion":"`+oldGroup+`"`), []byte(`"apiVersion":"`+newGroup+`"`)), nil
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(request[len(magic):]); err != nil {
		return nil, fmt.Errorf("read the envelope of a request: %w", err)
	}
	if envelope.APIVersion != oldGroup {
		return request, nil
	}
	envelope.APIVersion = newGroup
	text, err := envelope.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write the envelope of a request: %w", err)
	}
	return append(magic, text...), nil
}
