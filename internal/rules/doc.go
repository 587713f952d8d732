// Package rules holds the house rules as tests: who may import whom, package
// documentation, records that can be stored, sizes.
//
// It has no code that runs in the product. The tests parse every Go file of the
// tree in-process, so that go test sees which files they read and never answers
// from its cache after one has changed. To allow a new import, change the table
// in layers_test.go, and docs/architecture.md with it.
package rules
