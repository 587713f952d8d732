//go:build !race

package node

var raceFlags []string

const cgo = "0"
