package spec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/inroot"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/mapping"
	"fairlead.run/internal/spec/userdb"
)

// userFileLimit is what an image's /etc/passwd or /etc/group may take, so that
// no image can make the daemon read for ever.
const userFileLimit = 1 << 20

// who is a user as it is resolved, step by step.
type who struct {
	uid    uint32
	gid    uint32
	name   string // for the groups of /etc/group; empty if nobody knows it
	groups []uint32
}

// identity resolves who the process runs as: the request's user, or the
// image's, or root.
func (b *build) identity(context.Context) error {
	id := b.security().Identity
	if err := checkIdentity(id); err != nil {
		return err
	}
	var w who
	var err error
	switch {
	case id.Username != "":
		w, err = b.byName(id.Username)
	case id.UID != nil:
		w, err = b.byID(uint32(*id.UID), id.GID == nil || id.GroupsPolicy == pod.GroupsMerge)
	default:
		w, err = b.byImage(b.req.Image.User, id)
	}
	if err != nil {
		return err
	}
	if id.GID != nil {
		w.gid = uint32(*id.GID)
	}
	// The primary group is among the others too. Without it, a set-group-id
	// program could give it up, and with it what the group is kept from.
	w.groups = []uint32{w.gid}
	if id.GroupsPolicy == pod.GroupsMerge && w.name != "" {
		group, err := b.userFile("/etc/group")
		if err != nil {
			return err
		}
		w.groups = append(w.groups, userdb.GroupsOf(group, w.name)...)
	}
	for _, g := range id.SupplementalGroups {
		w.groups = append(w.groups, uint32(g))
	}
	b.setUser(w)
	return mapping.Process(w.uid, w.groups, b.pod().UserNamespace())
}

func (b *build) setUser(w who) {
	var groups []uint32
	for _, g := range w.groups {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	// Linux tells groups in ascending order, however they were set; gVisor's kernel does not.
	b.spec.Process.User = specs.User{UID: w.uid, GID: w.gid, AdditionalGids: slices.Sorted(slices.Values(groups))}
	b.user = pod.User{UID: int64(w.uid), GID: int64(w.gid)}
	for _, g := range groups {
		b.user.SupplementalGroups = append(b.user.SupplementalGroups, int64(g))
	}
}

func checkIdentity(id pod.Identity) error {
	const at = "linux.security_context."
	switch {
	case id.UID != nil && id.Username != "":
		return invalid(at+"run_as_user", "and run_as_username exclude each other; give one of them")
	case id.GID != nil && id.UID == nil && id.Username == "":
		return invalid(at+"run_as_group", "needs run_as_user or run_as_username")
	case id.UID != nil && !isID(*id.UID):
		return invalid(at+"run_as_user", "%d is no user id", *id.UID)
	case id.GID != nil && !isID(*id.GID):
		return invalid(at+"run_as_group", "%d is no group id", *id.GID)
	case id.GroupsPolicy != pod.GroupsMerge && id.GroupsPolicy != pod.GroupsStrict:
		return invalid(at+"supplemental_groups_policy", "%q is not known", id.GroupsPolicy)
	}
	for i, g := range id.SupplementalGroups {
		if !isID(g) {
			return invalid(fmt.Sprintf("%ssupplemental_groups[%d]", at, i), "%d is no group id", g)
		}
	}
	return nil
}

// isID says whether the kernel can have such an id; its largest means "none".
func isID(n int64) bool { return n >= 0 && n < math.MaxUint32 }

// byName is a user that has to be in the image.
func (b *build) byName(name string) (who, error) {
	passwd, err := b.userFile("/etc/passwd")
	if err != nil {
		return who{}, err
	}
	u, ok := userdb.ByName(passwd, name)
	if !ok {
		return who{}, invalid("linux.security_context.run_as_username", "%q is not in the image's /etc/passwd", name)
	}
	return who{uid: u.UID, gid: u.GID, name: u.Name}, nil
}

// byID is a user that the image may know. Where it does not, the group is
// root's. The image is asked only if look is set.
func (b *build) byID(uid uint32, look bool) (who, error) {
	if !look {
		return who{uid: uid}, nil
	}
	passwd, err := b.userFile("/etc/passwd")
	if err != nil {
		return who{}, err
	}
	u, _ := userdb.ByID(passwd, uid)
	return who{uid: uid, gid: u.GID, name: u.Name}, nil
}

// byImage is the USER of an image: "", "user", "uid", or either with ":group"
// or ":gid". A number is first looked for as a name, as Docker does.
func (b *build) byImage(user string, id pod.Identity) (who, error) {
	name, group, hasGroup := strings.Cut(user, ":")
	if name == "" {
		name = "0"
	}
	passwd, err := b.userFile("/etc/passwd")
	if err != nil {
		return who{}, err
	}
	var w who
	if u, ok := userdb.ByName(passwd, name); ok {
		w = who{uid: u.UID, gid: u.GID, name: u.Name}
	} else if uid, ok := userdb.ID(name); ok {
		u, _ := userdb.ByID(passwd, uid)
		w = who{uid: uid, gid: u.GID, name: u.Name}
	} else {
		return who{}, invalid("image user", "%q is not in the image's /etc/passwd; set linux.security_context.run_as_user", name)
	}
	if !hasGroup || group == "" || id.GID != nil {
		return w, nil
	}
	w.gid, err = b.imageGroup(group)
	return w, err
}

func (b *build) imageGroup(name string) (uint32, error) {
	content, err := b.userFile("/etc/group")
	if err != nil {
		return 0, err
	}
	if gid, ok := userdb.Group(content, name); ok {
		return gid, nil
	}
	if gid, ok := userdb.ID(name); ok {
		return gid, nil
	}
	return 0, invalid("image user", "has the group %s, which is not in the image's /etc/group; set linux.security_context.run_as_user and run_as_group", strconv.Quote(name))
}

// userFile reads a file of the image that it may well not have.
func (b *build) userFile(name string) ([]byte, error) {
	content, err := inroot.ReadFile(b.req.Rootfs, name, userFileLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}
