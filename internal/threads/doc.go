// Package threads lets a process live on where no process ids are left.
//
// A thread needs one, and Go's runtime ends the process when it cannot start a
// thread. It starts one whenever all that it has wait in the kernel, and keeps
// those that it does not need. So a process that has as many as it ever needs
// goes on without: Reserve makes them at its start, and Aside keeps those that
// share too little with the process to be the runtime's again.
//
// What it cannot do without a process id fails like anything else. Explain says
// of such a failure which limit was reached, and what to do.
package threads
