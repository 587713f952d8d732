//go:build !race

package cri

var raceFlags []string

const cgo = "0"
