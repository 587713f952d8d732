// Package certs keeps the certificate that a webhook serves with.
//
// Managed makes it itself: an authority and a serving certificate in a Secret,
// which all replicas share, and the authority's certificate in the webhook
// configurations, by which an API server believes the serving one. It renews both
// at two thirds of their lives, and repairs what somebody changes. Mounted takes
// what somebody else puts into a folder.
//
// A new authority is told to API servers before anything is signed by it, and the
// old one stays told after it: nobody has to restart, and no call fails.
package certs
