// Package report holds the results of the benchmark: what was measured, as it
// stands in the JSON file, the ratios that the project has promised, the
// comparison of two results, and the page that shows one.
//
// It measures nothing and is pure, but for reading and writing its files.
package report
