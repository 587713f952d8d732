// Package tomledit changes files in TOML that belong to somebody else, and keeps
// every byte that it did not put there itself.
//
// What it adds is a block between two comments, or one element of a list. Taking
// it out again gives the bytes that were there before. A file that cannot be
// changed in that way is refused; nothing is ever rewritten from a decoded form.
package tomledit
