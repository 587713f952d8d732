package chaos

import (
	"testing"

	"fairlead.run/test/node"
)

func TestMain(m *testing.M) { node.Main(m) }
