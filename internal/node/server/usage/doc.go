// Package usage says what a node, its pods and their containers use, in the
// forms that a kubelet has for it: the summary, and the metrics of resources and
// of cAdvisor in the text format of Prometheus.
//
// Pods are what a CRI runtime says of them, the machine is what the kernel says
// in /proc. Nothing is polled: whoever asks has it measured. What volumes take is
// what the node has found out lately. What is not known is left out and never zero.
package usage
