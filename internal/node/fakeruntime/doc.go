// Package fakeruntime is a CRI runtime in memory, for tests of what drives one. It
// outlives those that use it, tells events, and fails or hangs where it is told to.
//
// It implements the clients' side of k8s.io/cri-api, so that nothing is served, and
// tests may run in a bubble of testing/synctest. What it does not implement panics. What
// real runtimes do is not shown by it: test/run and test/e2e have those.
package fakeruntime
