// Package images makes container images for tests: it builds them from files
// given in the test, writes them as archives, and serves them from a registry
// inside the test's own process, which can be told to misbehave.
//
// Nothing here is used by the product. It depends on the image specification
// only, so that a test of the product does not check containerd's code with
// containerd's code.
package images
