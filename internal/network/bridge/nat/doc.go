// Package nat is the packet filter's part of the built-in network: one nftables
// table of the family inet that masquerades what pods send to the world, leads
// host ports to pods, and keeps pods away from the node's loopback addresses.
//
// It knows no links, addresses or pods beyond what it is told, and does not
// decide who may have a port.
package nat
