// Package installer tests fairlead install with the real command and real daemons,
// each with folders, socket and configuration of its own, and with a stand-in for
// CRI-O for where that is not.
//
// FAIRLEAD_TEST_CONTAINERD, FAIRLEAD_TEST_CONTAINERD17 and FAIRLEAD_TEST_CONTAINERD16
// name the programs of three releases of containerd, and FAIRLEAD_TEST_CRIO the folder
// of crio, pinns and conmon; make test-installer sets them. Tests of one that is
// missing skip.
package installer
