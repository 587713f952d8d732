package userids

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"fairlead.run/internal/errdefs"
)

// Range is from which id on there are Length ids for each of so many pods. Users and groups
// have the same.
type Range struct{ First, Pods uint32 }

// standard is what a kubelet takes where nobody has set anything: enough for as many pods
// as a node has by default, and none of those that a machine gives to users of its own.
var standard = Range{First: Length, Pods: 110}

// owner is the user whose subordinate ids are those of pods, as with a kubelet.
const owner = "kubelet"

// Find asks getsubids for the range of the user kubelet. Where there is no such user or
// program, or it has no entry, it is the kubelet's own default.
func Find(ctx context.Context) (Range, error) {
	if _, err := user.Lookup(owner); err != nil {
		if errors.As(err, new(user.UnknownUserError)) {
			return standard, nil
		}
		return Range{}, err
	}
	program, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return standard, nil
	}
	if err != nil {
		return Range{}, err
	}
	users, err := ask(ctx, program, owner)
	if err != nil {
		return Range{}, err
	}
	groups, err := ask(ctx, program, "-g", owner)
	if err != nil {
		return Range{}, err
	}
	return parse(users, groups)
}

// ask runs getsubids, which fails where there is no entry.
func ask(ctx context.Context, program string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		return "", fmt.Errorf("run %s: %w", program, err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// parse reads what getsubids has printed for users and for groups, as in
// "0: kubelet 65536 7208960".
func parse(users, groups string) (Range, error) {
	if users == "" && groups == "" {
		return standard, nil
	}
	u, err := line("/etc/subuid", users)
	if err != nil {
		return Range{}, err
	}
	g, err := line("/etc/subgid", groups)
	if err != nil {
		return Range{}, err
	}
	if u != g {
		return Range{}, fmt.Errorf("the entries of kubelet in /etc/subuid (%s) and /etc/subgid (%s) are not the same; a pod has the same ids for users and groups: %w", users, groups, errdefs.ErrInvalidArgument)
	}
	return u, nil
}

func line(file, text string) (Range, error) {
	fail := func(why string) (Range, error) {
		return Range{}, fmt.Errorf("the entry of kubelet in %s (%q) %s: %w", file, text, why, errdefs.ErrInvalidArgument)
	}
	if strings.Contains(text, "\n") {
		return fail("is more than one; leave one range")
	}
	fields := strings.Fields(text)
	if len(fields) != 4 {
		return fail("is missing, or cannot be read")
	}
	first, err1 := strconv.ParseUint(fields[2], 10, 32)
	length, err2 := strconv.ParseUint(fields[3], 10, 32)
	switch {
	case err1 != nil || err2 != nil:
		return fail("cannot be read")
	case first < Length:
		return fail("begins below 65536, among the ids of the machine itself")
	case first%Length != 0 || length%Length != 0 || length == 0:
		return fail("does not begin with a multiple of 65536, or does not have a multiple of so many ids")
	case first+length > math.MaxUint32:
		return fail("goes on beyond the last id that there is")
	}
	return Range{First: uint32(first), Pods: uint32(length / Length)}, nil
}
