package taskapi

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.run/internal/errdefs"
)

// nested is a message with a number at a path of fields.
func nested(v uint64, path ...protowire.Number) (m message) {
	if len(path) == 1 {
		m.number(path[0], v)
		return m
	}
	m.bytes(path[0], nested(v, path[1:]...))
	return m
}

func join(all ...message) (out []byte) {
	for _, m := range all {
		out = append(out, m...)
	}
	return out
}

func TestStats(t *testing.T) {
	number := func(n uint64) *uint64 { return &n }
	cpu := message(join(nested(30, 1), nested(10, 2), nested(20, 3)))
	var v1 message
	v1.bytes(3, nested(0, 9)) // what is not known is passed over
	var usage message
	usage.bytes(1, cpu)
	v1.bytes(3, usage)
	for name, c := range map[string]struct {
		kind    string
		metrics []byte
		want    Usage
		err     error
	}{
		"version 1": {
			"io.containerd.cgroups.v1.Metrics", join(v1, nested(4096, 4, 33, 2), nested(3, 2, 1)),
			Usage{number(30), number(20), number(10), number(4096), number(3)},
			nil,
		},
		"version 2": {
			"types.example/io.containerd.cgroups.v2.Metrics", join(nested(30, 2, 1), nested(4096, 4, 32), nested(3, 1, 1)),
			Usage{CPU: number(30000), Memory: number(4096), Processes: number(3)},
			nil,
		},
		"nothing": {"io.containerd.cgroups.v1.Metrics", nil, Usage{}, nil},
		"another": {"windows.Stats", nil, Usage{}, errdefs.ErrUnimplemented},
	} {
		e := serve(t, 2, func(method string, p fields) []byte {
			if method != "Stats" || string(p.bytes(1)) != "c" {
				return answer(9, method, nil)
			}
			var out message
			out.bytes(1, Any{c.kind, c.metrics}.Encode())
			return answer(0, "", out)
		})
		got, err := e.Stats(t.Context(), "c")
		if !errors.Is(err, c.err) || err != nil != (c.err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		for i, pair := range [][2]*uint64{
			{got.CPU, c.want.CPU}, {got.User, c.want.User}, {got.System, c.want.System}, {got.Memory, c.want.Memory}, {got.Processes, c.want.Processes},
		} {
			if (pair[0] == nil) != (pair[1] == nil) || pair[0] != nil && *pair[0] != *pair[1] {
				t.Errorf("%s: value %d is wrong: %v", name, i, pair[0])
			}
		}
	}
}

func FuzzUsage(f *testing.F) {
	f.Add([]byte{})
	f.Add(Any{"io.containerd.cgroups.v1.Metrics", join(nested(1, 3, 1, 1))}.Encode())
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parseUsage(data) // whatever it is, it ends
	})
}
