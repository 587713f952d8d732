package logquery

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "nothing",
		"other=1":                       "nothing",
		"query=kubelet":                 "kubelet",
		"query=kubelet&query=crio":      "kubelet crio",
		"query=/pods/a.log":             "file /pods/a.log",
		`query=\pods\a.log`:             "file /pods/a.log",
		"query=foo@bar.service&boot=-1": "foo@bar.service --boot=-1",
		"query=k&tailLines=5&sinceTime=2026-01-02T03:04:05%2B01:00": "k --lines=5 --since=2026-01-02 02:04:05",
		"query=k&pattern=a|b":                     "k --grep=a|b",
		"query=":                                  "malformed the name of a service",
		"query=%20":                               "malformed the name of a service",
		"query=k&sinceTime=yesterday":             "malformed sinceTime",
		"query=k&boot=x":                          "malformed boot",
		"query=k&tailLines=many":                  "malformed tailLines",
		"tailLines=5":                             "refused name it",
		"query=/a&query=b":                        "refused a file and a service",
		"query=/a&query=/b":                       "refused several files",
		"query=/a&tailLines=1":                    "refused leave them out",
		"query=k&boot=1":                          "refused boot=1",
		"query=k&tailLines=100001":                "refused tailLines=100001",
		"query=k&tailLines=-1":                    "refused tailLines=-1",
		"query=k&pattern=(":                       "refused pattern",
		"query=a&query=b&query=c&query=d&query=e": "refused 5 services",
		"query=k%3Brm":                            "refused is no name of a service",
		"query=" + strings.Repeat("a", 257):       "refused is no name of a service",
		"query=k&sinceTime=2026-01-03T00:00:00Z&untilTime=2026-01-02T00:00:00Z":        "refused sinceTime is after untilTime",
		"query=k&sinceTime=2026-01-01T00:00:00Z&untilTime=2026-01-02T00:00:00%2B00:00": "k --since=2026-01-01 00:00:00 --until=2026-01-02 00:00:00",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Read(values)
		kind, detail, _ := strings.Cut(want, " ")
		switch {
		case kind == "malformed" || kind == "refused":
			is := map[string]error{"malformed": ErrMalformed, "refused": ErrRefused}[kind]
			if !errors.Is(err, is) || !strings.Contains(err.Error(), detail) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		case err != nil:
			t.Errorf("%s: %v", text, err)
		case q == nil:
			if want != "nothing" {
				t.Errorf("%s: nothing, want %s", text, want)
			}
		default:
			got := strings.Join(q.Services, " ")
			if q.File != "" {
				got = "file " + q.File
			}
			for _, a := range q.options.args(nil) {
				if a != "--utc" && a != "--no-pager" && a != "--output=short-precise" {
					got += " " + a
				}
			}
			if got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
}

// journal is a journalctl that knows kubelet.service, and says how it was called.
func journal(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	text := "#!/bin/sh\nif [ \"$1\" = --field ]; then printf 'init.scope\\nkubelet.service\\nxkubelet2.service\\n'; exit; fi\necho \"$@\"\necho and errors >&2\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCopy(t *testing.T) {
	files := fstest.MapFS{
		"cron":            {Data: []byte("cron\n")},
		"web.log":         {Data: []byte("web.log\n")},
		"deep/deep.log":   {Data: []byte("deep\n")},
		"dir.log/nothing": {Data: []byte("x")},
		"kubelet.log":     {Data: []byte("of before\n")},
	}
	node := Node{Journalctl: journal(t), Files: files}
	for name, test := range map[string]struct {
		query, want string
		err         error
		node        Node
	}{
		"of the journal":       {query: "query=kubelet&tailLines=3", want: "--lines=3 --no-pager --output=short-precise --unit=kubelet --utc\nand errors\n"},
		"by its whole name":    {query: "query=kubelet.service", want: "--no-pager --output=short-precise --unit=kubelet.service --utc\nand errors\n"},
		"a file":               {query: "query=cron", want: "cron\n"},
		"a file with a suffix": {query: "query=web", want: "web.log\n"},
		"in its folder":        {query: "query=deep", want: "deep\n"},
		"one after the other":  {query: "query=cron&query=web", want: "cron\nweb.log\n"},
		"a part of a unit":     {query: "query=kube", err: fs.ErrNotExist},
		"nothing":              {query: "query=dir", err: fs.ErrNotExist},
		"after something":      {query: "query=cron&query=none", want: "cron\n\nthere is no log of none, neither in the journal nor as a file: file does not exist\n"},
		"options and a file":   {query: "query=cron&tailLines=1", err: ErrRefused},
		"no journal":           {query: "query=kubelet", want: "of before\n", node: Node{Files: files}},
		"a broken journal":     {query: "query=kubelet", want: "of before\n", node: Node{Journalctl: "/nowhere/journalctl", Files: files}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.node.Files == nil {
				test.node = node
			}
			values, _ := url.ParseQuery(test.query)
			q, err := Read(values)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := test.node.Copy(t.Context(), &out, q); !errors.Is(err, test.err) || out.String() != test.want {
				t.Errorf("%v, %q", err, out.String())
			}
		})
	}
}

// A journal that does not end is ended with who reads it.
func TestCopyEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journalctl")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nif [ \"$1\" = --field ]; then echo k.service; exit; fi\necho begun\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := ended{cancel: cancel}
	if err := (Node{Journalctl: path, Files: fstest.MapFS{}}).Copy(ctx, &out, &Query{Services: []string{"k"}}); err != nil {
		t.Error(err)
	}
	if got := out.String(); got != "begun\n\nread the journal: context canceled\n" {
		t.Errorf("%q", got)
	}
}

// ended goes away when it has read something.
type ended struct {
	strings.Builder
	cancel context.CancelFunc
}

func (e *ended) Write(p []byte) (int, error) {
	e.cancel()
	return e.Builder.Write(p)
}
