// Package certificates gets a node the certificates that it needs from the cluster,
// and has them renewed: the client certificate, with which it is that node for the
// API server, and the serving certificate of its own API. Keys are made here and
// never leave the machine.
package certificates
