package userdb

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
)

const passwd = `# comment:x:1:1
+nis:x:2:2
root:x:0:0:root:/root:/bin/sh
short:x:1
bad:x:-1:1::
bad2:x:99999999999:1::
none:x:4294967295:1::
app:x:1000:2000:App:/app:/bin/sh
app:x:1001:2001:second:/app:/bin/sh
twin:x:1000:3000::
`

const group = `root:x:0:
#c:x:9:app
wheel:x:10:root,app
empty:x:11:
app:x:2000:
spaced:x:12: app ,x
again:x:10:app
bad:x:y:app
short:x:13
four:x:14:application
`

func TestUsers(t *testing.T) {
	for name, want := range map[string]User{
		"root": {"root", 0, 0}, "app": {"app", 1000, 2000}, "twin": {"twin", 1000, 3000},
	} {
		if got, ok := ByName([]byte(passwd), name); !ok || got != want {
			t.Errorf("%s is %v, %t", name, got, ok)
		}
	}
	for _, name := range []string{"", "short", "bad", "bad2", "none", "nis", "+nis", "# comment", "comment", "nobody"} {
		if got, ok := ByName([]byte(passwd), name); ok {
			t.Errorf("%q is %v", name, got)
		}
	}
	if got, ok := ByID([]byte(passwd), 1000); !ok || got.Name != "app" {
		t.Errorf("1000 is %v, %t", got, ok)
	}
	if got, ok := ByID([]byte(passwd), 4294967295); ok {
		t.Errorf("no id is %v", got)
	}
	if got, ok := ByName([]byte("last:x:5:6"), "last"); !ok || got.UID != 5 {
		t.Errorf("a line without its end is %v, %t", got, ok)
	}
	if got, ok := ByName([]byte("dos:x:5:6:::\r\n"), "dos"); !ok || got.GID != 6 {
		t.Errorf("a line with a carriage return is %v, %t", got, ok)
	}
}

func TestGroups(t *testing.T) {
	if gid, ok := Group([]byte(group), "wheel"); !ok || gid != 10 {
		t.Errorf("wheel is %d, %t", gid, ok)
	}
	for _, name := range []string{"", "bad", "nogroup", "#c"} {
		if gid, ok := Group([]byte(group), name); ok {
			t.Errorf("%q is %d", name, gid)
		}
	}
	if got := GroupsOf([]byte(group), "app"); !reflect.DeepEqual(got, []uint32{10, 12}) {
		t.Errorf("groups of app: %v", got)
	}
	if got := GroupsOf([]byte(group), ""); got != nil {
		t.Errorf("groups of nobody: %v", got)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range maxGroups + 1000 {
		b.WriteString("g:x:")
		b.WriteString(strconv.Itoa(i + 1))
		b.WriteString(":me\n")
	}
	if n := len(GroupsOf([]byte(b.String()), "me")); n != maxGroups {
		t.Errorf("%d groups", n)
	}
}

func FuzzLookups(f *testing.F) {
	f.Add([]byte(passwd), "app")
	f.Add([]byte(group), "app")
	f.Add([]byte("::::\n:::\x00:\n"), "")
	f.Fuzz(func(t *testing.T, content []byte, name string) {
		if u, ok := ByName(content, name); ok && (u.Name != name || u.UID == 1<<32-1 || strings.Contains(name, ":")) {
			t.Errorf("user %q is %v", name, u)
		}
		if u, ok := ByID(content, 0); ok && u.UID != 0 {
			t.Errorf("user 0 is %v", u)
		}
		Group(content, name)
		seen := map[uint32]bool{}
		for _, g := range GroupsOf(content, name) {
			if seen[g] || g == 1<<32-1 {
				t.Errorf("group %d of %q", g, name)
			}
			seen[g] = true
		}
	})
}
