// Package units has systemd itself verify every file of a unit that the project ships
// or writes on a node: what is in deploy/systemd, and the drop-in of the installer.
//
// It starts no unit: what they do is tested where systemd is process 1.
package units
