// Package userdb looks users and groups up in the contents of an image's
// /etc/passwd and /etc/group.
//
// The contents are whatever the image's author wrote. A line that is malformed
// is passed over, as the C library does it, and no input makes a lookup cost
// more than reading the content once. It opens no files.
package userdb

import (
	"bytes"
	"strconv"
	"strings"
)

// maxGroups is NGROUPS_MAX: the kernel takes no more groups for a process.
const maxGroups = 65536

// User is a line of /etc/passwd.
type User struct {
	Name string
	UID  uint32
	GID  uint32
}

// ByName finds a user. Of two with one name, the first counts.
func ByName(passwd []byte, name string) (User, bool) {
	return find(passwd, func(u User) bool { return u.Name == name })
}

// ByID finds a user. Of two with one id, the first counts.
func ByID(passwd []byte, uid uint32) (User, bool) {
	return find(passwd, func(u User) bool { return u.UID == uid })
}

func find(passwd []byte, want func(User) bool) (User, bool) {
	for line := range bytes.Lines(passwd) {
		f := fields(line)
		if len(f) < 4 || !isName(f[0]) {
			continue
		}
		uid, ok := ID(f[2])
		gid, ok2 := ID(f[3])
		if !ok || !ok2 {
			continue
		}
		if u := (User{Name: f[0], UID: uid, GID: gid}); want(u) {
			return u, true
		}
	}
	return User{}, false
}

// Group finds the id of a group. Of two with one name, the first counts.
func Group(group []byte, name string) (uint32, bool) {
	for line := range bytes.Lines(group) {
		f := fields(line)
		if len(f) < 3 || f[0] != name || !isName(name) {
			continue
		}
		if gid, ok := ID(f[2]); ok {
			return gid, true
		}
	}
	return 0, false
}

// GroupsOf is the ids of the groups that name the user as a member, in the
// order of the file and each once.
func GroupsOf(group []byte, user string) []uint32 {
	var out []uint32
	seen := map[uint32]bool{}
	for line := range bytes.Lines(group) {
		f := fields(line)
		if len(f) < 4 || !isName(f[0]) || len(out) == maxGroups {
			continue
		}
		gid, ok := ID(f[2])
		if !ok || seen[gid] || !lists(f[3], user) {
			continue
		}
		seen[gid] = true
		out = append(out, gid)
	}
	return out
}

func lists(members, user string) bool {
	for m := range strings.SplitSeq(members, ",") {
		if strings.TrimSpace(m) == user {
			return user != ""
		}
	}
	return false
}

// ID reads a user or group id. The largest 32-bit number means "none" to the
// kernel and is no id.
func ID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 1<<32-1 {
		return 0, false
	}
	return uint32(n), true
}

func fields(line []byte) []string {
	return strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
}

// isName is false for comments and for the lines that NIS once used.
func isName(s string) bool {
	return s != "" && !strings.HasPrefix(s, "#") && !strings.HasPrefix(s, "+") && !strings.HasPrefix(s, "-")
}
