// Package runtimetest is the contract of runtime handlers as a test suite: what
// the core relies on, checked with real containers. Every driver runs it, for
// every runtime that is installed, and so does Fake.
//
// It builds its own bundles from busybox-static. It does not test what a
// specification means to a runtime; test/cri does that.
package runtimetest
