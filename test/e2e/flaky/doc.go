// Package flaky is a proxy between a client and a real API server that goes wrong on
// purpose: it refuses requests as API servers do, loses answers to what was carried
// out, and delays, cuts off and ends watches. It can also stand for an API server of
// another age. It judges nothing: whoever uses it looks at the API server itself.
package flaky
