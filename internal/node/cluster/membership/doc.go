// Package membership makes a machine a node of a cluster and keeps it one: it
// registers the Node object, renews its Lease, and writes its status.
//
// What a status says is in nodestatus; what others have put on the Node stays.
package membership
