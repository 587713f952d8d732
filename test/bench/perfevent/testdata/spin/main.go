// Command spin computes, and enters the kernel, until its input ends.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	fmt.Println("begun")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for i := 0; ; i++ {
		compute(i)
		enter()
	}
}

// sum keeps the loop from being left out.
var sum int

//go:noinline
func compute(n int) {
	for i := range 200_000 {
		sum ^= i * n
	}
}

//go:noinline
func enter() {
	for range 200 {
		_, _ = os.Stat("/proc/self/status")
	}
}
