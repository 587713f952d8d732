// Package plugins is the list of runtime types. Each is a folder here with a
// function New, and docs/operator.md shows how to add one.
package plugins

//go:generate go run ./list
