// Package specs_test is upstream's end-to-end program with the specs of nodes
// alone: those that every kind of node has to pass, and those of RuntimeClass. Its
// specs are the ones of k8s.io/kubernetes/test/e2e, which brings those of
// networks, storage and apps as well, and takes longer to build.
package specs_test

import (
	"flag"
	"os"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	// The specs.
	_ "k8s.io/kubernetes/test/e2e/common"
	_ "k8s.io/kubernetes/test/e2e/node"

	// After each spec it waits for the node to be ready.
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestSpecs(t *testing.T) { e2e.RunE2ETests(t) }
