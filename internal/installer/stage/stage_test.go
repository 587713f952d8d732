package stage

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/mounttest"
)

// staging is a payload with a script, a text and a program below a folder, and a
// stager for it, on amd64.
func staging(t *testing.T) Stager {
	t.Helper()
	s := Stager{From: t.TempDir(), Base: t.TempDir(), Sum: "0123456789abcdef", Arch: "amd64"}
	s.Payload = &payload.RuntimePayload{Type: "test", Version: "1", Architectures: []string{"amd64"}}
	add(t, &s, payload.File{Path: "shim", Mode: "0755"}, "#!/bin/sh\n")
	add(t, &s, payload.File{Path: "LICENSE", Source: "text", Mode: "0644"}, "as is\n")
	add(t, &s, payload.File{Path: "lib/kernel", Source: "amd64-kernel", Arch: "amd64", Mode: "0555"}, program(elf.EM_X86_64))
	s.Payload.Files = append(s.Payload.Files, payload.File{Path: "lib/kernel", Source: "arm64-kernel", Arch: "arm64", Mode: "0555"})
	return s
}

// add has a file in a payload, as its manifest says.
func add(t *testing.T, s *Stager, f payload.File, content string) {
	t.Helper()
	source := f.Source
	if source == "" {
		source = f.Path
	}
	write(t, filepath.Join(s.From, source), content, 0o600)
	sum := sha256.Sum256([]byte(content))
	f.Size, f.SHA256 = int64(len(content)), hex.EncodeToString(sum[:])
	s.Payload.Files = append(s.Payload.Files, f)
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	err := os.WriteFile(path, []byte(content), mode)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// program is the head of a program for a machine, which is all that is looked at.
func program(m elf.Machine) string {
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(m), Version: uint32(elf.EV_CURRENT), Ehsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	_ = binary.Write(&b, binary.LittleEndian, &h) // into memory
	return b.String()
}

// names are those in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// whole fails unless the folder of the version is complete and alone.
func whole(t *testing.T, s Stager) {
	t.Helper()
	if err := s.Check(true); err != nil {
		t.Error(err)
	}
	if got := names(t, s.Base); !slices.Equal(got, []string{"1-0123456789ab"}) {
		t.Errorf("there are %q", got)
	}
}

func TestPlace(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	s := staging(t)
	for _, left := range []string{working + "1", former + "1"} {
		if err := os.MkdirAll(filepath.Join(s.Base, left, "shim"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Check(false); err == nil {
		t.Error("it is complete before it is there")
	}
	if err := s.Place(); err != nil {
		t.Fatal(err)
	}
	whole(t, s)
	if got := names(t, s.Dir()); !slices.Equal(got, []string{marker, "LICENSE", "lib", "shim"}) {
		t.Errorf("in it are %q", got)
	}
	for path, want := range map[string]os.FileMode{"": 0o755, "lib": 0o755, "shim": 0o755, "LICENSE": 0o644, "lib/kernel": 0o555} {
		if info, err := os.Stat(filepath.Join(s.Dir(), path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v %v", path, info.Mode(), err)
		}
	}
	before, err := os.Stat(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Place(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(s.Dir()); err != nil || !os.SameFile(before, after) {
		t.Errorf("one that is complete was replaced: %v", err)
	}
}

// What was damaged is replaced as a whole, and a pod that runs from it keeps its files.
func TestPlaceMends(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"another content":    func(t *testing.T, dir string) { write(t, filepath.Join(dir, "shim"), "#!/bin/no\n", 0o755) },
		"another size":       func(t *testing.T, dir string) { write(t, filepath.Join(dir, "shim"), "", 0o755) },
		"another mode":       func(t *testing.T, dir string) { write(t, filepath.Join(dir, "shim"), "#!/bin/sh\n", 0o644) },
		"another marker":     func(t *testing.T, dir string) { write(t, filepath.Join(dir, marker), "other\n", 0o644) },
		"no marker":          func(t *testing.T, dir string) { remove(t, filepath.Join(dir, marker)) },
		"no file":            func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "lib/kernel")) },
		"a link to the same": func(t *testing.T, dir string) { link(t, filepath.Join(dir, "shim")) },
		"no folder, but a file": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "lib"))
			write(t, filepath.Join(dir, "lib"), "", 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := staging(t)
			if err := s.Place(); err != nil {
				t.Fatal(err)
			}
			pod, err := os.Open(filepath.Join(s.Dir(), "LICENSE"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = pod.Close() }()
			damage(t, s.Dir())
			if s.Check(true) == nil {
				t.Fatal("nobody sees it")
			}
			if err := s.Place(); err != nil {
				t.Fatal(err)
			}
			whole(t, s)
			if text, err := io.ReadAll(pod); err != nil || string(text) != "as is\n" {
				t.Errorf("a pod reads %q: %v", text, err)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// link puts a link to the same content in the place of a file.
func link(t *testing.T, path string) {
	t.Helper()
	aside := filepath.Join(t.TempDir(), "aside")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, aside, string(text), 0o755)
	if err := errors.Join(os.Remove(path), os.Symlink(aside, path)); err != nil {
		t.Fatal(err)
	}
}

// Without deep, only what costs nothing is looked at.
func TestCheckTakesContentForGood(t *testing.T) {
	s := staging(t)
	if err := s.Place(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.Dir(), "shim"), "#!/bin/no\n", 0o755)
	if err := s.Check(false); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(s.Dir(), "shim"), "#!/bin/sh", 0o755)
	if err := s.Check(false); err == nil {
		t.Error("a file that was cut short is taken")
	}
}

// A payload that is not as its manifest says is refused, with the file, and neither
// leaves anything nor touches what is there.
func TestPlaceRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, s *Stager)
		want   string
	}{
		"truncated": {func(t *testing.T, s *Stager) { write(t, filepath.Join(s.From, "text"), "as", 0o600) }, "text of the payload is not a file of 6 bytes"},
		"longer":    {func(t *testing.T, s *Stager) { write(t, filepath.Join(s.From, "text"), "as is, and more\n", 0o600) }, "not a file of 6 bytes"},
		"tampered":  {func(t *testing.T, s *Stager) { write(t, filepath.Join(s.From, "shim"), "#!/bin/no\n", 0o600) }, "shim of the payload has the SHA-256"},
		"missing":   {func(t *testing.T, s *Stager) { remove(t, filepath.Join(s.From, "amd64-kernel")) }, "lacks amd64-kernel"},
		"a folder": {func(t *testing.T, s *Stager) {
			remove(t, filepath.Join(s.From, "text"))
			if err := os.Mkdir(filepath.Join(s.From, "text"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "not a file of 6 bytes"},
		"a link out of it":  {func(t *testing.T, s *Stager) { link(t, filepath.Join(s.From, "shim")) }, "lacks shim"},
		"no payload at all": {func(_ *testing.T, s *Stager) { s.From += "/none" }, "open the payload"},
		"of another machine": {func(t *testing.T, s *Stager) {
			add(t, s, payload.File{Path: "other", Mode: "0755"}, program(elf.EM_AARCH64))
		}, "other of the payload is a program for EM_AARCH64, and this node is amd64"},
		"of an older machine": {func(t *testing.T, s *Stager) {
			add(t, s, payload.File{Path: "other", Arch: "amd64", Mode: "0700"}, program(elf.EM_386))
		}, "EM_386"},
	} {
		t.Run(name, func(t *testing.T) {
			s := staging(t)
			other := filepath.Join(s.Base, "0-other")
			if err := os.Mkdir(other, 0o755); err != nil {
				t.Fatal(err)
			}
			c.damage(t, &s)
			err := s.Place()
			if err == nil || fault.Of(err) != payload.PayloadInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", fault.Of(err), err)
			}
			if got := names(t, s.Base); !slices.Equal(got, []string{"0-other"}) {
				t.Errorf("there are %q", got)
			}
		})
	}
}

// What is no program for one machine is not held against the machine.
func TestPlaceTakes(t *testing.T) {
	s := staging(t)
	add(t, &s, payload.File{Path: "data", Mode: "0644"}, program(elf.EM_AARCH64))
	add(t, &s, payload.File{Path: "empty", Mode: "0755"}, "")
	add(t, &s, payload.File{Path: "magic", Mode: "0755"}, elf.ELFMAG)
	if err := s.Place(); err != nil {
		t.Error(err)
	}
	s = staging(t)
	s.Payload.Architectures = []string{"amd64", "arm64"} // such as firmware for guests of either
	add(t, &s, payload.File{Path: "firmware", Mode: "0755"}, program(elf.EM_AARCH64))
	if err := s.Place(); err != nil {
		t.Error(err)
	}
}

// Cut off at any place by an error, nothing is left but what is complete, and the next
// attempt succeeds.
func TestPlaceThatFails(t *testing.T) {
	defer func() { _ = failpoint.Enable("") }()
	for _, place := range []string{halfCopied, copied, swapped, marked} {
		s := staging(t)
		if err := failpoint.Enable(place + "=error"); err != nil {
			t.Fatal(err)
		}
		if err := s.Place(); !errors.Is(err, failpoint.ErrInjected) {
			t.Errorf("%s: %v", place, err)
		}
		for _, name := range names(t, s.Base) {
			if strings.HasPrefix(name, ".") {
				t.Errorf("%s: %s is left", place, name)
			}
		}
		if done := s.Check(true) == nil; done != (place == marked) {
			t.Errorf("%s: it is complete: %v", place, done)
		}
		if err := failpoint.Enable(""); err != nil {
			t.Fatal(err)
		}
		if err := s.Place(); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		whole(t, s)
	}
}

func TestConfigs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc-1")
	all := []payload.Config{{Path: "a.toml", Content: "a = 1\n"}, {Path: "b.toml"}}
	if err := CheckConfigs(dir, all); err == nil {
		t.Error("they are there before they are written")
	}
	if err := CheckConfigs(dir, nil); err != nil {
		t.Error(err)
	}
	write := func() {
		t.Helper()
		if err := errors.Join(Configs(dir, all), CheckConfigs(dir, all)); err != nil {
			t.Error(err)
		}
	}
	write()
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	write()
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("what is there was written anew: %v", err)
	}
	for _, damaged := range []error{os.WriteFile(filepath.Join(dir, "a.toml"), []byte("a = 2\n"), 0o644), os.Remove(filepath.Join(dir, "b.toml"))} {
		if damaged != nil {
			t.Fatal(damaged)
		}
		if err := CheckConfigs(dir, all); err == nil {
			t.Error("a change is not seen")
		}
	}
	write()
	if err := Configs(filepath.Join(dir, "no", "where"), all); err == nil {
		t.Error("folders were made")
	}
}

// small has the rest of the test on a thread of its own, with a file system of some
// bytes that nobody else sees and that goes with the thread.
func small(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	mounttest.Private(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // the folder goes next
	return dir
}

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		flags   uintptr
		options string
		want    payload.Reason
	}{
		"enough":      {0, "size=64m", ""},
		"none":        {0, "size=8m", payload.NoSpace},
		"read-only":   {unix.MS_RDONLY, "size=64m", payload.ReadOnlyTarget},
		"no programs": {unix.MS_NOEXEC, "size=64m", payload.UnsupportedNode},
	} {
		t.Run(name, func(t *testing.T) {
			s := staging(t)
			s.Base = filepath.Join(small(t, c.flags, c.options), "not", "there")
			if err := s.Room(); fault.Of(err) != c.want || err != nil && !strings.Contains(err.Error(), filepath.Dir(filepath.Dir(s.Base))) {
				t.Errorf("%s: %v", fault.Of(err), err)
			}
		})
	}
	s := staging(t)
	write(t, filepath.Join(s.Base, "file"), "", 0o644)
	s.Base = filepath.Join(s.Base, "file", "below")
	if err := s.Room(); err == nil {
		t.Error("there is room below a file")
	}
}

// What is there needs no room a second time.
func TestRoomForWhatIsThere(t *testing.T) {
	s := staging(t)
	s.Base = small(t, 0, "size=8m")
	if err := s.Place(); err != nil {
		t.Fatal(err)
	}
	if err := s.Room(); err != nil {
		t.Error(err)
	}
}

// A disk that is full in the middle is told as that, and is as full afterwards as before.
func TestFullDisk(t *testing.T) {
	s := staging(t)
	add(t, &s, payload.File{Path: "big", Mode: "0644"}, strings.Repeat("x", 256<<10))
	s.Base = small(t, 0, "size=128k")
	write(t, filepath.Join(s.Base, "keep"), "mine", 0o644)
	free := func() uint64 {
		var st unix.Statfs_t
		if err := unix.Statfs(s.Base, &st); err != nil {
			t.Fatal(err)
		}
		return st.Bfree
	}
	before := free()
	if err := s.Place(); fault.Of(err) != payload.NoSpace || !strings.Contains(err.Error(), "big") {
		t.Errorf("%s: %v", fault.Of(err), err)
	}
	if got := names(t, s.Base); !slices.Equal(got, []string{"keep"}) || free() != before {
		t.Errorf("there are %q, and %d blocks of %d are free", got, free(), before)
	}
}
