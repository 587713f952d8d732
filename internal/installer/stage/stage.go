// Package stage puts the files of a payload into the folder of its version, so that
// the folder is there with all of them or not at all.
//
// They are copied into a folder of another name, flushed, compared with the
// manifest and checked to be for this machine; then that folder is renamed, and a
// marker written into it last. A folder without its marker is none. What runs from
// a folder is never written to: a repair puts a new folder in its place.
package stage

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/installer/fault"
)

var (
	halfCopied = failpoint.Register("install.half-copied")
	copied     = failpoint.Register("install.copied")
	swapped    = failpoint.Register("install.swapped")
	marked     = failpoint.Register("install.marked")
)

// Names of what is in the folder of a type beside its versions.
const (
	marker  = ".complete"
	working = ".new-"
	former  = ".old-"
)

// Stager puts versions of one payload below Base.
type Stager struct {
	// From is the folder of the payload.
	From string
	// Base is the folder of the type, as this process sees it.
	Base string
	// Payload is the manifest, and Sum its hash.
	Payload *payload.RuntimePayload
	Sum     string
	// Arch is that of the node, as in GOARCH.
	Arch string
}

// Dir is the folder of the version.
func (s Stager) Dir() string { return filepath.Join(s.Base, payload.Folder(s.Payload.Version, s.Sum)) }

// files are those for the node.
func (s Stager) files() []payload.File {
	var all []payload.File
	for _, f := range s.Payload.Files {
		if f.Arch == "" || f.Arch == s.Arch {
			all = append(all, f)
		}
	}
	return all
}

// Check says what is wrong with the folder, or nil. Without deep, contents are
// taken for good if their sizes are right.
func (s Stager) Check(deep bool) error {
	mark, err := os.ReadFile(filepath.Join(s.Dir(), marker))
	if err != nil {
		return fmt.Errorf("check %s: it is not complete: %w", s.Dir(), err)
	}
	if string(mark) != s.Sum+"\n" {
		return fmt.Errorf("check %s: its marker is of another payload", s.Dir())
	}
	for _, f := range s.files() {
		if err := s.checkFile(f, deep); err != nil {
			return fmt.Errorf("check %s: %w", s.Dir(), err)
		}
	}
	return nil
}

func (s Stager) checkFile(f payload.File, deep bool) error {
	path := filepath.Join(s.Dir(), f.Path)
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if want := perm(f); !info.Mode().IsRegular() || info.Mode().Perm() != want || info.Size() != f.Size {
		return fmt.Errorf("%s has mode %v and %d bytes, and not %v and %d", f.Path, info.Mode(), info.Size(), want, f.Size)
	}
	if !deep {
		return nil
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("%s has the content %s and not %s", f.Path, got, f.SHA256)
	}
	return nil
}

func perm(f payload.File) fs.FileMode {
	n, _ := strconv.ParseUint(f.Mode, 8, 32) // validated with the manifest
	return fs.FileMode(n)
}

// Place makes the folder complete, and does nothing if it is.
func (s Stager) Place() error {
	if err := s.Sweep(); err != nil {
		return err
	}
	if s.Check(true) == nil {
		return nil
	}
	work, err := os.MkdirTemp(s.Base, working)
	if err != nil {
		return fmt.Errorf("stage %s %s: %w", s.Payload.Type, s.Payload.Version, err)
	}
	err = s.fill(work)
	if err == nil {
		err = s.swap(work)
	}
	if err != nil {
		return fmt.Errorf("stage %s %s: %w", s.Payload.Type, s.Payload.Version, errors.Join(err, os.RemoveAll(work)))
	}
	return nil
}

// Sweep removes what earlier attempts have left.
func (s Stager) Sweep() error {
	entries, err := os.ReadDir(s.Base)
	if err != nil {
		return fmt.Errorf("clear %s: %w", s.Base, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), working) || strings.HasPrefix(e.Name(), former) {
			if err := os.RemoveAll(filepath.Join(s.Base, e.Name())); err != nil {
				return fmt.Errorf("clear %s: %w", s.Base, err)
			}
		}
	}
	return nil
}

func (s Stager) fill(work string) error {
	from, err := os.OpenRoot(s.From)
	if err != nil {
		return fault.New(payload.PayloadInvalid, "open the payload: %w", err)
	}
	defer func() { _ = from.Close() }()
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	for i, f := range s.files() {
		if err := s.copy(from, work, f); err != nil {
			return err
		}
		if i == 0 {
			if err := failpoint.Hit(halfCopied); err != nil {
				return err
			}
		}
	}
	if err := settle(work); err != nil {
		return err
	}
	return failpoint.Hit(copied)
}

func (s Stager) copy(from *os.Root, work string, f payload.File) error {
	source := f.Source
	if source == "" {
		source = f.Path
	}
	in, err := from.Open(source)
	if err != nil {
		return fault.New(payload.PayloadInvalid, "the payload lacks %s: %w", source, err)
	}
	defer func() { _ = in.Close() }()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
		return fault.New(payload.PayloadInvalid, "%s of the payload is not a file of %d bytes, as its manifest says; the image is truncated or was changed", source, f.Size)
	}
	path := filepath.Join(work, f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	if err == nil {
		err = out.Chmod(perm(f))
	}
	if err == nil {
		err = out.Sync()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", f.Path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return fault.New(payload.PayloadInvalid, "%s of the payload has the SHA-256 %s, and its manifest says %s; the image was changed or does not belong to this manifest", source, got, f.SHA256)
	}
	return s.fits(path, f)
}

// machines are the architectures as ELF names them.
var machines = map[string]elf.Machine{
	"386": elf.EM_386, "amd64": elf.EM_X86_64, "arm": elf.EM_ARM, "arm64": elf.EM_AARCH64, "loong64": elf.EM_LOONGARCH,
	"mips64le": elf.EM_MIPS, "ppc64le": elf.EM_PPC64, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
}

// fits refuses programs for other machines. What is no ELF file, such as a script,
// is not looked at, and neither is what is for all of several architectures.
func (s Stager) fits(path string, f payload.File) error {
	if perm(f)&0o111 == 0 || f.Arch == "" && len(s.Payload.Architectures) > 1 {
		return nil
	}
	e, err := elf.Open(path)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("look at %s: %w", f.Path, err)
	}
	defer func() { _ = e.Close() }()
	if e.Machine != machines[s.Arch] {
		return fault.New(payload.PayloadInvalid, "%s of the payload is a program for %v, and this node is %s; build the payload anew", f.Path, e.Machine, s.Arch)
	}
	return nil
}

// swap puts the folder under its name. What is there already is moved away first:
// pods that run from it keep their files.
func (s Stager) swap(work string) error {
	dir := s.Dir()
	if _, err := os.Lstat(dir); err == nil {
		old := filepath.Join(s.Base, former+filepath.Base(work))
		err := unix.Renameat2(unix.AT_FDCWD, work, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
		if err == nil {
			err = os.Rename(work, old)
		} else if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // not on every file system
			if err = os.Rename(dir, old); err == nil {
				err = os.Rename(work, dir)
			}
		}
		if err != nil {
			return err
		}
	} else if err := os.Rename(work, dir); err != nil {
		return err
	}
	if err := errors.Join(flush(s.Base), failpoint.Hit(swapped)); err != nil {
		return err
	}
	if err := writeSync(filepath.Join(dir, marker), []byte(s.Sum+"\n")); err != nil {
		return err
	}
	if err := failpoint.Hit(marked); err != nil {
		return err
	}
	return s.Sweep()
}

func writeSync(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = flush(filepath.Dir(path))
	}
	return err
}

// settle gives folders their mode, whatever the umask, and flushes them.
func settle(top string) error {
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return errors.Join(os.Chmod(path, 0o755), flush(path))
	})
}

func flush(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
