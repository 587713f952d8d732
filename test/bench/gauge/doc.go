// Package gauge reads what the processes of a daemon weigh and how much they
// compute, from /proc. The workload of the pods is never counted; everything
// else that runs because of the daemon is, the pause processes of its pods too.
package gauge
