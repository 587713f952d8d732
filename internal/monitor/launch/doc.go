// Package launch runs the commands of OCI runtimes that leave a process, such
// as "runc run --detach", for as long as they take.
//
// A command has a session of its own and a deadline, its words are kept within
// bounds, and a terminal that it delivers is received. What becomes of the
// process that it leaves is not this package's business.
package launch
