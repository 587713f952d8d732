//go:build race

package node

// raceFlags make the programs under test watch for races as the tests do.
var raceFlags = []string{"-race"}

const cgo = "1"
