// Package join makes a machine a node of a cluster: it joins an agent, the node's side
// of the API server, what the node has to give, and the node API.
package join
