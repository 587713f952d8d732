// Package installer tests fairlead install with the real command and real
// containerds, each with folders, socket and configuration of its own, and with a
// stand-in for CRI-O, which cannot be built here.
//
// FAIRLEAD_TEST_CONTAINERD and FAIRLEAD_TEST_CONTAINERD16 name the programs of two
// releases; make test-installer sets them. Tests of one that is missing skip.
package installer
