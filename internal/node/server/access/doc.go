// Package access says who asks a node for something, and whether they may.
//
// Who: the common name and organizations of a client certificate that a CA of
// the bundle has signed, or what the API server says of a bearer token, or
// nobody, where that is allowed. Whether: the API server is asked about the
// verb on the resource nodes and its subresource that a path stands for. Both
// answers are kept for a while. Whatever cannot be found out is refused.
//
// It serves nothing and knows no client of an API server: who makes reviews is
// behind an interface.
package access
