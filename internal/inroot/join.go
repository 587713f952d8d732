package inroot

import (
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Join is where a path of root is seen from here, with all links followed as they
// are meant there: an absolute one begins at root, and none leads out. What is not
// there yet is joined as it is.
//
// It is for a root whose owner is trusted, such as a node's under a mount, as
// somebody may change a link between this and the use of its result. It needs no
// openat2. Where a link cannot be followed, as in a loop, opening the result fails.
func Join(root, name string) string {
	if root == "" {
		root = "/"
	}
	at, err := securejoin.SecureJoin(root, name)
	if err != nil {
		return filepath.Join(root, filepath.Clean("/"+name))
	}
	return at
}

// JoinParent is Join but for the last part, which is left as it is: for removing a
// link, and not what it leads to.
func JoinParent(root, name string) string {
	name = filepath.Clean("/" + name)
	if name == "/" {
		return Join(root, name)
	}
	return filepath.Join(Join(root, filepath.Dir(name)), filepath.Base(name))
}
