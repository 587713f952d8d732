package folder

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/changeset"
	"fairlead.run/internal/node/source/keep"
	"fairlead.run/internal/node/watchtest"
)

func pod(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: i}]}\n"
}

// running is a source at work.
type running struct {
	t    *testing.T
	dir  string
	sets chan source.Set
	last source.Set
}

// start runs a source on a folder until the test ends or stop is called.
func start(t *testing.T, dir string, kept keep.Folder) (r *running, stop func()) {
	t.Helper()
	return startWith(t, Config{Path: dir, Keep: kept, Log: slog.New(slog.DiscardHandler)})
}

func startWith(t *testing.T, c Config) (r *running, stop func()) {
	t.Helper()
	r = &running{t: t, dir: c.Path, sets: make(chan source.Set)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := New(c, func(s source.Set) {
		select {
		case r.sets <- s:
		case <-ctx.Done():
		}
	})
	go func() { done <- s.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return r, stop
}

func pods(s source.Set) string {
	if s.Objects == nil {
		return "unknown"
	}
	var names []string
	for _, p := range s.Objects.Pods {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// wait waits for a set with these pods, and a problem with each of the texts and no
// other.
func (r *running) wait(want string, problems ...string) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case r.last = <-r.sets:
		case <-deadline:
			r.t.Fatalf("no set with %q and the problems %q; the last is %q, %v", want, problems, pods(r.last), r.last.Problems)
		}
		fits := slices.EqualFunc(r.last.Problems, problems, func(p source.Problem, text string) bool { return strings.Contains(p.Err.Error(), text) })
		if pods(r.last) == want && fits {
			return
		}
	}
}

func (r *running) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) do(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestStatic reads a folder as a kubelet does: whatever its files are called, and with
// all fields of a Pod, also from what an earlier agent has kept.
func TestStatic(t *testing.T) {
	c := Config{Path: t.TempDir(), Keep: keep.Folder(t.TempDir()), Static: true, Log: slog.New(slog.DiscardHandler)}
	critical := func(name string) string {
		return strings.Replace(pod(name), "spec: {", "spec: {priorityClassName: system-node-critical, ", 1)
	}
	r, stop := startWith(t, c)
	r.wait("")
	r.write("etcd.manifest", critical("a"))
	r.wait("a")
	r.write("plain", critical("b"))
	r.wait("a b")
	r.do(os.Mkdir(filepath.Join(r.dir, "folder"), 0o700))
	r.write(".hidden", pod("c"))
	r.write("d.json", pod("d"))
	r.wait("d a b")
	r.write("plain", "broken")
	r.wait("d a b", "stays in force")
	stop()
	r, _ = startWith(t, c)
	r.wait("d a b", "stays in force")
}

// TestSingleFile follows one file, whatever is beside it, as a kubelet does.
func TestSingleFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pod.yaml")
	if err := os.WriteFile(path, []byte(pod("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Path: path, Keep: keep.Folder(t.TempDir()), Static: true, Log: slog.New(slog.DiscardHandler)}
	r, stop := startWith(t, c)
	r.dir = dir
	r.wait("a")
	r.write("other.yaml", pod("b"))
	r.write("new", pod("c"))
	r.do(os.Rename(filepath.Join(dir, "new"), path))
	r.wait("c")
	r.write("pod.yaml", "broken")
	r.wait("c", "stays in force")
	stop()
	r, _ = startWith(t, c)
	r.dir = dir
	r.wait("c", "stays in force")
	r.do(os.Remove(path))
	r.wait("")
}

// TestFiles changes one file after the other.
func TestFiles(t *testing.T) {
	r, _ := start(t, t.TempDir(), "")
	path := func(name string) string { return filepath.Join(r.dir, name) }
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.wait("a")
	r.write("b.yml", pod("b"))
	r.wait("a b")
	r.write("c.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	r.wait("a b c")
	r.write("d.txt", pod("d"))
	r.write(".e.yaml", pod("e"))
	r.do(os.Mkdir(path("f.yaml"), 0o700))
	r.write("f.yaml/g.yaml", pod("g"))
	r.write("h.YAML", pod("h"))
	r.wait("a b c h")
	r.do(os.Rename(path("a.yaml"), path("i.yaml")))
	r.wait("b c h a")
	r.do(os.Remove(path("b.yml")))
	r.wait("c h a")
	r.write("c.json", "---\n"+pod("c2"))
	r.wait("c2 h a")
}

// TestFaults has all that may be wrong with one file beside one that is right.
func TestFaults(t *testing.T) {
	tests := map[string]struct {
		spoil func(path string) error
		want  string
	}{
		"broken":       {func(p string) error { return os.WriteFile(p, []byte("apiVersion: v1\nkind: [Pod\n"), 0o600) }, "b.yaml:"},
		"unknown kind": {func(p string) error { return os.WriteFile(p, []byte("apiVersion: v2\nkind: Pod\n"), 0o600) }, "b.yaml:2: document 1: Pod of v2"},
		"a bad field": {func(p string) error {
			return os.WriteFile(p, []byte(strings.Replace(pod("b"), "image", "imagee", 1)), 0o600)
		}, "b.yaml:4: document 1: Pod default/b: spec.containers[0].imagee: is not a field"},
		"empty": {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "holds no document"},
		"huge":  {func(p string) error { return os.Truncate(p, manifest.MaxSize+1) }, "is larger than 10 MiB; split it"},
		"pipe":  {replace(func(p string) error { return unix.Mkfifo(p, 0o600) }), "is not a file but a pipe"},
		"device": {replace(func(p string) error {
			return os.Symlink("/dev/zero", p)
		}), "is not a file but a pipe, a socket or a device"},
		"link to nothing": {replace(func(p string) error { return os.Symlink("nothing.yaml", p) }), "is a link to what does not exist"},
		"link to itself":  {replace(func(p string) error { return os.Symlink("b.yaml", p) }), "too many levels of symbolic links"},
		"binary":          {func(p string) error { return os.WriteFile(p, []byte{0xff, 0xfe, 0}, 0o600) }, "is not UTF-8"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := start(t, t.TempDir(), "")
			r.wait("")
			path := filepath.Join(r.dir, "b.yaml")
			r.write("a.yaml", pod("a"))
			r.write("b.yaml", pod("b"))
			r.wait("a b")
			r.do(tt.spoil(path))
			r.wait("a b", tt.want)
			if got := r.last.Problems[0]; got.Origin != path || !strings.Contains(got.Err.Error(), path+": what it held before stays in force") {
				t.Errorf("the problem is %q: %v", got.Origin, got.Err)
			}
			r.write("c.yaml", pod("c")) // the others go on
			r.wait("a b c", tt.want)
			r.do(os.Remove(path))
			r.wait("a c")
			r.write("b.yaml", pod("b")) // and so does it
			r.wait("a b c")
		})
	}
}

// replace removes a file before it makes something else of its name.
func replace(make func(path string) error) func(string) error {
	return func(p string) error {
		if err := make(p + ".new"); err != nil {
			return err
		}
		return os.Rename(p+".new", p)
	}
}

// TestNeverGood has a file that was broken from the beginning.
func TestNeverGood(t *testing.T) {
	r, _ := start(t, t.TempDir(), "")
	r.wait("")
	r.write("b.yaml", "what is this")
	r.wait("", "b.yaml: none of its pods run until it is mended")
	r.write("b.yaml", pod("b"))
	r.wait("b")
}

// TestTwice defines an object in two files: the first by name has it.
func TestTwice(t *testing.T) {
	r, _ := start(t, t.TempDir(), "")
	r.wait("")
	r.write("b.yaml", pod("x")+"---\n"+pod("q"))
	r.wait("x q")
	r.write("c.yaml", pod("x"))
	r.wait("x q", "c.yaml:3: document 1: Pod default/x: is defined twice; the first is at "+r.dir+"/b.yaml:1")
	r.do(os.Remove(filepath.Join(r.dir, "b.yaml")))
	r.wait("x")
}

// TestHalfWritten writes a manifest whose first half is right, too.
func TestHalfWritten(t *testing.T) {
	r, _ := start(t, t.TempDir(), "")
	r.wait("")
	r.write("a.yaml", pod("a")+"---\n"+pod("b"))
	r.wait("a b")
	f, err := os.Create(filepath.Join(r.dir, "a.yaml"))
	r.do(err)
	defer func() { _ = f.Close() }()
	_, err = f.WriteString(pod("a"))
	r.do(err)
	r.write("c.yaml", pod("c")) // whose events come after
	r.wait("a b c")
	_, err = f.WriteString("---\n" + pod("b2"))
	r.do(err)
	r.do(f.Close())
	r.wait("a b2 c")
}

// TestNeverClosed has a writer that goes on for ever: what it wrote is taken some
// time after the last write.
func TestNeverClosed(t *testing.T) {
	now := time.Now()
	f := newFiles(Config{Path: t.TempDir(), Keep: ""})
	path := filepath.Join(f.folder, "a.yaml")
	if err := os.WriteFile(path, []byte(pod("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.note(event{name: "a.yaml", mask: unix.IN_MODIFY}, now)
	if changed, again := f.take([]string{"a.yaml"}, now); changed || again != patience {
		t.Errorf("what is being written: %t, again in %s", changed, again)
	}
	if changed, _ := f.take([]string{"a.yaml"}, now.Add(patience-1)); changed {
		t.Error("patience ended before its time")
	}
	if changed, again := f.take([]string{"a.yaml"}, now.Add(patience)); !changed || again != audit {
		t.Errorf("what was not closed: %t, again in %s", changed, again)
	}
	if changed, _ := f.take([]string{"a.yaml"}, now.Add(patience)); changed {
		t.Error("an unchanged file is new")
	}
	if changed, _ := f.take(nil, now); !changed || len(f.entries)+len(f.writing)+len(f.dirty) > 0 {
		t.Errorf("something is left of a file that is gone: %+v", f)
	}
}

// TestConfigMap mounts a ConfigMap by hand, as a kubelet does, and updates it.
func TestConfigMap(t *testing.T) {
	r, _ := start(t, t.TempDir(), "")
	path := func(name string) string { return filepath.Join(r.dir, name) }
	r.wait("")
	for i, version := range []string{"..1", "..2"} {
		r.do(os.Mkdir(path(version), 0o700))
		r.write(version+"/a.yaml", pod(fmt.Sprintf("a%d", i)))
		r.do(os.Symlink(version, path("..data_tmp")))
		r.do(os.Rename(path("..data_tmp"), path("..data")))
		if i == 0 {
			r.do(os.Symlink("..data/a.yaml", path("a.yaml")))
		}
		r.wait(fmt.Sprintf("a%d", i))
	}
}

// TestFolderIsGone moves the folder away, and another one to its place.
func TestFolderIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	r, _ := start(t, dir, "")
	r.wait("unknown", "manifest folder "+dir+": no such file or directory")
	r.do(os.Mkdir(dir, 0o700))
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.wait("a")
	r.do(os.Rename(dir, dir+".old"))
	r.wait("a", "no such file or directory; the pods of its files stay as they are")
	r.do(os.WriteFile(dir, nil, 0o600))
	r.wait("a", "not a directory")
	r.do(os.Remove(dir))
	r.do(os.Mkdir(dir, 0o700))
	r.wait("")
	r.write("b.yaml", pod("b")) // the new one is followed
	r.wait("b")
}

// TestUnwatched follows a folder where the user has no inotify instance left, which it says, and
// logs once.
func TestUnwatched(t *testing.T) {
	mend := watchtest.Unwatched(t)
	if mend == nil {
		return
	}
	var log bytes.Buffer
	const late = "changes are noticed late, as it cannot be watched: watch: too many open files (see the sysctl fs.inotify.max_user_instances)"
	r, stop := startWith(t, Config{Path: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	r.wait("", late)
	r.write("a.yaml", pod("a"))
	r.wait("a", late)
	r.write("a.yaml", pod("b"))
	r.wait("b", late)
	r.do(os.Remove(filepath.Join(r.dir, "a.yaml")))
	r.wait("", late)
	r.do(mend())
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.wait("a")
	stop()
	if n := strings.Count(log.String(), "is not watched"); n != 1 {
		t.Errorf("the log says it %d times: %s", n, &log)
	}
}

// TestUnmounted takes a file system away under a source.
func TestUnmounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	mount := func() {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Skipf("nothing can be mounted here: %v", err)
		}
	}
	mount()
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	r, stop := start(t, dir, "")
	defer stop()
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.wait("a")
	r.do(unix.Unmount(dir, unix.MNT_DETACH))
	mounted = false
	r.wait("a", "it is empty and on another file system than before")
	r.write("b.yaml", pod("b"))
	r.wait("b")
}

// TestKept ends a source, breaks what it reads, and starts another one.
func TestKept(t *testing.T) {
	dir, kept := t.TempDir(), keep.Folder(filepath.Join(t.TempDir(), "kept"))
	r, stop := start(t, dir, kept)
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.write("b.yaml", pod("b"))
	r.write("c.yaml", pod("c"))
	r.wait("a b c")
	stop()
	r.write("a.yaml", "broken")
	r.do(os.Remove(filepath.Join(dir, "c.yaml")))
	r, stop = start(t, dir, kept)
	r.wait("a b", "what it held before stays in force")
	stop()
	r.do(os.Rename(dir, dir+".gone"))
	r, stop = start(t, dir, kept)
	r.wait("a b", "no such file or directory")
	stop()
	elsewhere, stop := start(t, t.TempDir(), kept) // the copies of another folder are not its own
	elsewhere.wait("")
	stop()
	if left, err := kept.Load(); err != nil || len(left) > 0 {
		t.Errorf("kept: %v, %v", left, err)
	}
}

// TestNotKept cannot keep its copies for a while, as on a disk that is full: it says so, and
// keeps them once it can though nothing happens to the manifests.
func TestNotKept(t *testing.T) {
	t.Parallel()
	full := filepath.Join(t.TempDir(), "full")
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kept := keep.Folder(filepath.Join(full, "kept"))
	r, _ := start(t, t.TempDir(), kept)
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.write("b.yaml", pod("b"))
	r.write("c.yaml", pod("c"))
	r.wait("a b c", "a.yaml: mkdir "+full+": not a directory") // one tells for all
	if got := r.last.Problems[0].Event(); got != keep.NotKept {
		t.Error(got)
	}
	r.do(os.Remove(filepath.Join(r.dir, "c.yaml")))
	r.wait("a b", "it is tried again")
	r.do(os.Remove(full))
	r.wait("a b")
	if copies, err := kept.Load(); err != nil || len(copies) != 2 {
		t.Errorf("kept: %v, %v", copies, err)
	}
}

// TestLost has a copy that nobody can read, which is told until the folder was read.
func TestLost(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), t.TempDir()
	r, stop := start(t, dir, keep.Folder(kept))
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.wait("a")
	stop()
	copies, err := filepath.Glob(filepath.Join(kept, "*.manifest"))
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	r.do(os.WriteFile(copies[0], []byte("{"), 0o600))
	r, _ = start(t, dir, keep.Folder(kept))
	r.wait("a", "copies that an earlier agent has kept are lost")
	if got := r.last.Problems[0].Event(); got != keep.Lost {
		t.Error(got)
	}
	r.wait("a")
}

// TestWhole reads files before others have changed some of them, or after, and tells of a
// change that was cut off and cannot be put back.
func TestWhole(t *testing.T) {
	dir := t.TempDir()
	changes := changeset.New(dir)
	r, _ := startWith(t, Config{Path: dir, Changes: changes, Log: slog.New(slog.DiscardHandler)})
	r.wait("")
	held, err := changes.Lock(t.Context())
	r.do(err)
	r.do(held.Change(changeset.Change{Name: "a.yaml", Data: []byte(pod("a"))}))
	time.Sleep(3 * settle) // in which a source that does not wait reads it
	r.do(held.Change(changeset.Change{Name: "b.yaml", Data: []byte(pod("b"))}))
	held.Release()
	if r.last = <-r.sets; pods(r.last) != "a b" {
		t.Fatalf("it has seen %q", pods(r.last))
	}
	// As a change of two files leaves a folder that is cut off after the first.
	cut := filepath.Join(dir, ".change")
	r.do(os.Mkdir(cut, 0o700))
	r.do(os.WriteFile(filepath.Join(cut, "none.c.yaml"), nil, 0o600))
	r.do(os.MkdirAll(filepath.Join(dir, "c.yaml", "x"), 0o700))
	r.wait("a b", "put back the files of a change that failed or was cut off")
	r.do(os.RemoveAll(filepath.Join(dir, "c.yaml")))
	r.wait("a b")
	if _, err := os.Stat(cut); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestMany has more files than are read.
func TestMany(t *testing.T) {
	r := running{t: t, dir: t.TempDir()}
	for _, name := range []string{"a", "b", "c"} {
		r.write(name+".yaml", pod(name))
	}
	s := New(Config{Path: r.dir, Log: slog.New(slog.DiscardHandler)}, nil)
	defer s.unwatch()
	s.most = 2
	s.files.dirty = map[string]bool{"a.yaml": true, "b.yaml": true} // nobody is writing them
	s.look(t.Context())
	got := s.all()
	if pods(got) != "a b" || len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Err.Error(), "it holds 3 manifests, and only the first 2") {
		t.Errorf("%s, %v", pods(got), got.Problems)
	}
}

// TestStorm does everything to a few files at once, and ends with something that is
// right.
func TestStorm(t *testing.T) {
	r, _ := start(t, t.TempDir(), keep.Folder(t.TempDir()))
	path := func(i int) string { return filepath.Join(r.dir, fmt.Sprintf("f%d.yaml", i)) }
	stormed := make(chan struct{})
	go func() {
		defer close(stormed)
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			i, j := random.IntN(10), random.IntN(10)
			switch random.IntN(6) {
			case 0:
				_ = os.Remove(path(i))
			case 1:
				_ = os.Rename(path(i), path(j))
			case 2:
				_ = os.WriteFile(path(i), []byte("broken"), 0o600)
			case 3:
				_ = os.Symlink(path(j), path(i))
			default:
				_ = os.WriteFile(path(i), []byte(pod(fmt.Sprintf("p%d", j))), 0o600)
			}
		}
		for i := range 10 {
			_ = os.Remove(path(i))
			_ = os.WriteFile(path(i), []byte(pod(fmt.Sprintf("p%d", i))), 0o600)
		}
	}()
	r.wait("p0 p1 p2 p3 p4 p5 p6 p7 p8 p9")
	<-stormed
}

// TestQuiet hands on nothing when nothing has changed.
func TestQuiet(t *testing.T) {
	r, _ := start(t, t.TempDir(), "")
	r.wait("")
	r.write("a.yaml", pod("a"))
	r.wait("a")
	now := time.Now()
	r.do(os.Chtimes(filepath.Join(r.dir, "a.yaml"), now, now))
	r.do(os.Chmod(filepath.Join(r.dir, "a.yaml"), 0o640))
	r.write("a.yaml", pod("a")) // the same again
	r.write("notes.txt", "x")
	r.write("b.yaml", pod("b"))
	if r.last = <-r.sets; pods(r.last) != "a b" {
		t.Errorf("a set in between: %q", pods(r.last))
	}
}
