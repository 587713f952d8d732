package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// affords says why a pod whose cgroup has that folder cannot have less memory than before: it
// uses more. Cgroups v1 refuse that themselves, and with v2 the kernel would end what runs in
// it. What cannot be read is for who sets the limit to complain of.
func affords(dir string, limit int64) error {
	has, known := number(dir, "memory.max")
	uses, measured := number(dir, "memory.current")
	if limit <= 0 || known && has <= limit || !measured || uses < limit {
		return nil
	}
	return fmt.Errorf("cannot decrease memory limits: attempting to set pod memory limit (%d) below current usage (%d MiB); it is tried again until the pod uses less, or ask for more",
		limit, uses>>20+1)
}

// number is what a file of a cgroup says, unless that is "max".
func number(dir, file string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
