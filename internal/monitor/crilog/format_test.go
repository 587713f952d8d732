package crilog

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 1, 2, 16, 4, 5, 60, time.FixedZone("east", 3600))

const stamp = "2026-01-02T15:04:05.000000060Z "

func TestFormat(t *testing.T) {
	for name, c := range map[string]struct {
		raw   string
		max   int
		flush bool
		want  []string // without the stamp
		used  int
	}{
		"nothing":             {"", 10, true, nil, 0},
		"one line":            {"a\n", 10, false, []string{"stdout F a"}, 2},
		"empty lines":         {"\n\n", 10, false, []string{"stdout F ", "stdout F "}, 2},
		"unfinished is kept":  {"a\nbc", 10, false, []string{"stdout F a"}, 2},
		"unfinished alone":    {"bc", 10, false, nil, 0},
		"unfinished, flushed": {"a\nbc", 10, true, []string{"stdout F a", "stdout P bc"}, 4},
		"just the limit":      {"0123\n", 4, false, []string{"stdout F 0123"}, 5},
		"limit, no newline":   {"0123", 4, false, nil, 0},
		"over the limit":      {"01234\n", 4, false, []string{"stdout P 0123", "stdout F 4"}, 6},
		"twice the limit":     {"01234567\n", 4, false, []string{"stdout P 0123", "stdout F 4567"}, 9},
		"carriage return":     {"a\r\n", 10, false, []string{"stdout F a\r"}, 3},
		"binary":              {"\x00\xff\n", 10, false, []string{"stdout F \x00\xff"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			got, used := Format(make([]byte, 0, 4096), []byte(c.raw), Rules{Stream: Stdout, At: at, Max: c.max, Flush: c.flush})
			var want strings.Builder
			for _, w := range c.want {
				want.WriteString(stamp + w + "\n")
			}
			if string(got) != want.String() || used != c.used {
				t.Errorf("%q, %d bytes used; want %q, %d", got, used, want.String(), c.used)
			}
		})
	}
}

// What does not fit is left for the next call, and nothing is ever moved.
func TestFormatKeepsToItsRoom(t *testing.T) {
	raw := []byte(strings.Repeat("line\n", 100))
	out := make([]byte, 0, 200)
	got, used := Format(out, raw, Rules{Stream: Stderr, At: at, Max: 100})
	if len(got) > 200 || used == 0 || used%5 != 0 || &got[0] != &out[:1][0] {
		t.Errorf("%d bytes for %d", len(got), used)
	}
}

// Joined as readers join them, the entries are the bytes that were written.
func FuzzFormat(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), uint8(3))
	f.Fuzz(func(t *testing.T, raw []byte, limit uint8) {
		var joined bytes.Buffer
		left := raw
		for len(left) > 0 {
			out, used := Format(make([]byte, 0, 1024), left, Rules{Stream: Stdout, At: at, Max: int(limit) + 1, Flush: true})
			if used == 0 {
				t.Fatal("no progress")
			}
			left = left[used:]
			rest := out
			for len(rest) > 0 {
				rest = rest[len(stamp)+len("stdout "):]
				end := bytes.IndexByte(rest, '\n')
				joined.Write(rest[2:end])
				if rest[0] == 'F' {
					joined.WriteByte('\n')
				}
				rest = rest[end+1:]
			}
		}
		if !bytes.Equal(joined.Bytes(), raw) {
			t.Errorf("%q became %q", raw, joined.Bytes())
		}
	})
}
