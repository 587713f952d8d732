//go:build !amd64

package host

func x32() bool { return false }
