// Package chaos breaks a running node on purpose: it kills the daemon and the
// monitor at every place that can be named, corrupts what they keep, fills
// disks, hangs file systems and churns through pods. Nothing may be lost, and
// nothing may be left.
//
// Each file breaks one kind of thing. What works when nothing is broken is
// tested in test/cri.
package chaos
