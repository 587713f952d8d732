// Package classtable is a table of RuntimeClasses with what an API server says
// to each: accepted, or refused because of which fields.
//
// The tests of pkg/runtimeclass hold its validation to it, and test/e2e sends it to
// a real API server, whose causes are those of Case.AtServer. Names repeat, so
// nothing of it is to be left there.
package classtable
