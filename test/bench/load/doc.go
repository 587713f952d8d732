// Package load makes a CRI daemon work, by the calls that a kubelet makes, and
// takes the time of each.
//
// It does not know which daemon it drives, and judges nothing.
package load
