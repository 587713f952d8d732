package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const sample = `top = 1
[a]
b.c = "x" # with a dot
inline = { d = true, "e f" = [1, 2] }

[[list]]
name = "first"
  [[list.inner]]
  deep = 1
[[list]]
name = "second"
  [[list.inner]]
  [[list.inner]]
  deep = 2
[list.table]
g = 1
`

func TestEveryKeyHasItsLine(t *testing.T) {
	top, err := Parse("f.toml", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	top.Unused(func(names []string, n *Node) { got[n.Key+" "+fmt.Sprint(n.Value)] = n.Line })
	want := map[string]int{
		"top 1": 1, "a.b.c x": 3, "a.inline.d true": 4, `a.inline."e f" [1 2]`: 4,
		"list.name first": 7, "list.inner.deep 1": 9, "list.name second": 11, "list.inner.deep 2": 14, "list.table.g 1": 16,
	}
	for key, line := range want {
		if got[key] != line {
			t.Errorf("%s is said to be in line %d, not %d", key, got[key], line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsUsedIsNotLeft(t *testing.T) {
	top, err := Parse("f.toml", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var take Taker
	if n, ok := take.Int(top.At("top")); n != 1 || !ok {
		t.Errorf("top is %d", n)
	}
	top.At("a").Use()
	top.At("list").Use()
	top.Unused(func(names []string, n *Node) { t.Errorf("%v is left", names) })
	if take.String(top.At("a", "inline", "d")) != "" || take.Err() == nil || !strings.Contains(take.Err().Error(), "f.toml:4: a.inline.d: this is no string") {
		t.Errorf("a truth for a string: %v", take.Err())
	}
}

func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	pipe, large, broken := filepath.Join(dir, "pipe"), filepath.Join(dir, "large"), filepath.Join(dir, "broken")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{large: "#" + strings.Repeat("x", MaxFile), broken: "a = 1\nb = \n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		pipe: "is no regular file", dir: "is no regular file", large: "is larger than", broken: broken + ":2:",
		filepath.Join(dir, "absent"): "no such file",
	} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
