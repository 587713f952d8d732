// Package configimport makes a configuration of Fairlead's from that of another
// runtime, with a report of what has no counterpart.
//
// The folders below it have a part each: tree reads the files, containerd and
// crio know what their keys mean, and plan is what they come to. It asks no
// daemon and changes nothing but the files that Write is told to make.
package configimport
