// Package census counts what a cluster has of RuntimeClasses, and who uses them:
// classes, the nodes and handlers that they need, pods, and the pods that find no
// node because of them. It tells that as metrics.
//
// It reads what the webhook's caches have anyway, asks no API server for anything,
// and takes no part in admission.
package census
