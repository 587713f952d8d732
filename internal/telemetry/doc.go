// Package telemetry counts what a daemon does and tells it to whoever scrapes
// it, in the text format of Prometheus (version 0.0.4).
//
// It knows nothing of pods: names, labels and what they mean are its user's. It
// is no client of any collector, and keeps no history.
package telemetry
