// Package hostprep prepares a host for tests that start containers, and undoes
// that. It also makes hosts of their own for tests: namespaces, and one with
// systemd as process 1. It is for TestMain and for programs under build/; nothing that a user
// runs changes the host's cgroup mounts.
package hostprep
