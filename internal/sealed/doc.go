// Package sealed runs a program from a copy of it in memory that nobody can
// change any more.
//
// crun makes such a copy of itself each time it runs, so that a container which
// gets hold of its program cannot overwrite the one on the disk (CVE-2019-5736).
// That takes a third of its time. It makes none if it runs from one already.
package sealed
