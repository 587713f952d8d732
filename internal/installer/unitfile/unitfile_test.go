package unitfile

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/installer/containerd"
)

const (
	vendor = "usr/lib/systemd/system/a-b.service"
	admin  = "etc/systemd/system/a-b.service"
)

// put makes the files of a node. One whose text begins with -> is a link.
func put(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if to, link := strings.CutPrefix(text, "->"); link && err == nil {
			err = os.Symlink(to, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // words, with | between them
	}{
		"a unit":                          {map[string]string{vendor: "# text\n[Unit]\nExecStart=/no\n[Service]\nExecStartPre=-/sbin/modprobe overlay\nExecStart=/bin/a --config /x\n[Install]\nExecStart=/no\n"}, "/bin/a|--config|/x"},
		"the admin's before the vendor's": {map[string]string{vendor: "[Service]\nExecStart=/bin/a\n", admin: "[Service]\nExecStart = /bin/b \n"}, "/bin/b"},
		"an empty value resets":           {map[string]string{vendor: "[Service]\nExecStart=/bin/a\n", admin + ".d/x.conf": "[Service]\nExecStart=\nExecStart=/bin/b\n"}, "/bin/b"},
		"the last counts":                 {map[string]string{vendor: "[Service]\nExecStart=/bin/a\nExecStart=/bin/b\n"}, "/bin/b"},
		"drop-ins by name, wherever":      {map[string]string{vendor: "[Service]\n", admin + ".d/10.conf": "[Service]\nExecStart=/bin/a\n", "run/systemd/system/a-b.service.d/20.conf": "[Service]\nExecStart=/bin/b\n", vendor + ".d/05.conf": "[Service]\nExecStart=/bin/c\n"}, "/bin/b"},
		"one of two with a name":          {map[string]string{vendor: "[Service]\n", admin + ".d/10.conf": "[Service]\nExecStart=/bin/a\n", vendor + ".d/10.conf": "[Service]\nExecStart=/bin/b\n"}, "/bin/a"},
		"a drop-in that is masked":        {map[string]string{vendor: "[Service]\nExecStart=/bin/a\n", admin + ".d/10.conf": "->/dev/null", vendor + ".d/10.conf": "[Service]\nExecStart=/bin/b\n"}, "/bin/a"},
		"what is no drop-in":              {map[string]string{vendor: "[Service]\nExecStart=/bin/a\n", admin + ".d/10.conf.bak": "[Service]\nExecStart=/bin/b\n"}, "/bin/a"},
		"drop-ins of a prefix":            {map[string]string{vendor: "[Service]\nExecStart=/bin/a\n", "etc/systemd/system/a-.service.d/10.conf": "[Service]\nExecStart=/bin/b\n"}, "/bin/b"},
		"drop-ins of all services":        {map[string]string{vendor: "[Service]\nExecStart=/bin/a $X\n", "etc/systemd/system/service.d/10.conf": "[Service]\nEnvironment=X=y\n"}, "/bin/a|y"},
		"a link, and drop-ins of both":    {map[string]string{admin: "->/usr/lib/systemd/system/real.service", "usr/lib/systemd/system/real.service": "[Service]\nExecStart=/bin/a $X $Y\n", "etc/systemd/system/real.service.d/1.conf": "[Service]\nEnvironment=X=x\n", admin + ".d/2.conf": "[Service]\nEnvironment=Y=y\n"}, "/bin/a|x|y"},
		"lines that go on":                {map[string]string{vendor: "[Service]\nExecStart=/bin/a \\\n  --b \\\n# not this\n  --c\nType=simple\n"}, "/bin/a|--b|--c"},
		"quotes and escapes":              {map[string]string{vendor: `[Service]` + "\n" + `ExecStart=/bin/a "b c" 'd "e' f\sg \x41\101 "\"" \; h"i"j` + "\n"}, `/bin/a|b c|d "e|f g|AA|"|;|hij`},
		"several in one line":             {map[string]string{vendor: "[Service]\nExecStart=/bin/a ; /bin/b c\n"}, "/bin/b|c"},
		"prefixes":                        {map[string]string{vendor: "[Service]\nEnvironment=X=y\nExecStart=-!/bin/a $X\n"}, "/bin/a|y"},
		"another name":                    {map[string]string{vendor: "[Service]\nExecStart=@/bin/a name b\n"}, "/bin/a|b"},
		"no variables":                    {map[string]string{vendor: "[Service]\nEnvironment=X=y\nExecStart=:/bin/a $X\n"}, "/bin/a|$X"},
		"specifiers":                      {map[string]string{vendor: "[Service]\nExecStart=/bin/a %n %N 5%% %t/x\n"}, "/bin/a|a-b.service|a-b|5%|/run/x"},
		"variables":                       {map[string]string{vendor: "[Service]\nEnvironment=X=y \"Z=a b\" 'W=c'\nExecStart=/bin/a --x=${X}/${Z} $Z $NONE $$X ${NONE} $Wx W$W\n"}, "/bin/a|--x=y/a b|a|b|$X||W$W"},
		"no variables any more":           {map[string]string{vendor: "[Service]\nEnvironment=X=y\nEnvironment=\nExecStart=/bin/a ${X}\n"}, "/bin/a|"},
		"files of variables":              {map[string]string{vendor: "[Service]\nEnvironment=X=y\nEnvironmentFile=-/etc/none\nEnvironmentFile=-/etc/a*\nExecStart=/bin/a $X ${Y}\n", "etc/ab": "# text\nX=z\nY='1 2'\n"}, "/bin/a|z|1 2"},
	} {
		got, _, err := Command(put(t, c.files), "a-b.service")
		if err != nil || strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q %v, want %q", name, got, err, c.want)
		}
	}
}

// What a service is started with counts whether its command line has it or not.
func TestEnvironment(t *testing.T) {
	root := put(t, map[string]string{
		vendor: "[Service]\nEnvironment=X=1 Y=2\nEnvironmentFile=-/etc/a\nExecStart=:/bin/a $X\n", "etc/a": "Y='3 4'\n", admin + ".d/x.conf": "[Service]\nEnvironment=Z=\n",
	})
	_, env, err := Command(root, "a-b.service")
	if want := map[string]string{"X": "1", "Y": "3 4", "Z": ""}; err != nil || !maps.Equal(env, want) {
		t.Errorf("%q %v", env, err)
	}
}

func TestCommandRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"no unit":             {nil, "no such unit"},
		"masked":              {map[string]string{admin: "->/dev/null", vendor: "[Service]\nExecStart=/bin/a\n"}, "masked by /etc/systemd/system/a-b.service"},
		"no command":          {map[string]string{vendor: "[Service]\nExecStart=/bin/a\nExecStart=\n"}, "no ExecStart"},
		"an open quote":       {map[string]string{vendor: "[Service]\nExecStart=/bin/a \"b\n"}, "quote is not closed"},
		"an unknown number":   {map[string]string{vendor: "[Service]\nExecStart=/bin/a %b\n"}, "%b stands for"},
		"a missing file":      {map[string]string{vendor: "[Service]\nEnvironmentFile=/etc/none\nExecStart=/bin/a $X\n"}, "/etc/none is not there"},
		"a folder for a file": {map[string]string{admin + "/x": ""}, "no regular file"},
	} {
		got, _, err := Command(put(t, c.files), "a-b.service")
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "a-b.service") {
			t.Errorf("%s: %q %v", name, got, err)
		}
		if name == "no unit" && !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%v", err)
		}
	}
}

// What the installer writes for systemd is read as it was meant, and nothing that
// somebody has written makes this fail otherwise than by an error.
func FuzzCommand(f *testing.F) {
	for _, text := range []string{"/bin/a b", "a\\", "\"", "$", "${", "%", "@", "[Service]\nExecStart=\\x", "\\777 \\u12", ";", "=\\\n#\n", "é\\é", "-", "$$", "a;b \"; '"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root := put(t, map[string]string{vendor: "[Service]\nExecStart=" + text + "\n"})
		_, _, _ = Command(root, "a-b.service") // whatever it makes of that
		args := append([]string{"/bin/a"}, strings.Split(text, ",")...)
		starter, err := containerd.Starter(args)
		if err != nil {
			return
		}
		root = put(t, map[string]string{vendor: "[Service]\nExecStart=/bin/b\n", admin + ".d/x.conf": string(starter)})
		if got, _, err := Command(root, "a-b.service"); err != nil || !slices.Equal(got, args) {
			t.Errorf("%q became %q: %v", args, got, err)
		}
	})
}
