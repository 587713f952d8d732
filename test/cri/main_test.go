package cri

import (
	"fmt"
	"os"
	"testing"

	"fairlead.run/test/node"
)

func TestMain(m *testing.M) {
	if os.Getenv(actAsPlugin) != "" {
		if err := confess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	node.Main(m)
}
