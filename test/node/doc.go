// Package node is what the tests of the real programs share: it builds them,
// starts `fairlead runtime` as root with folders, a bridge and sockets of its
// own, makes pods and containers over the CRI socket, kills what a test wants
// dead, and says what is left on the host.
//
// A package uses it by
//
//	func TestMain(m *testing.M) { node.Main(m) }
//
// and each test by Start, or UnderEach for every handler. What a test asserts
// is not here, and neither are fakes.
package node
