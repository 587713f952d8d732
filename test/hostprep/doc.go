// Package hostprep prepares a host for tests that start containers, and undoes
// that. It is for TestMain and for programs under build/; nothing that a user
// runs changes the host's cgroup mounts.
package hostprep
