// Package bridge is the built-in pod network: one Linux bridge per node, a
// veth pair per pod, IPv4 and IPv6, address translation and host ports by
// nftables. It needs no plugins and starts no processes; everything is
// netlink.
//
// It is for one machine, and for clusters whose nodes reach each other's pods
// in no other way than through Services on node ports. It is no overlay
// network and enforces no network policies; those are what CNI is for.
//
// What it puts on the host, all named after Config: the bridge, an nftables
// table of the family inet, and while pods run their veth ends. Purge removes
// them. It turns IP forwarding on where it is off, which it does not take back,
// because others may have come to rely on it; Notes tells.
package bridge
