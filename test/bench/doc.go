// Command bench measures Fairlead beside containerd: how long calls of the CRI
// take, one at a time and many at once, how much memory and processor an idle
// node takes, how fast images are pulled, and what a pod costs in processor time.
// "make bench" builds what it needs and runs it; "make bench-compare" says what
// changed.
//
// It asserts nothing about speed, so that it can run in CI: what it finds is in
// a JSON file, and in docs/performance.md.
package main
