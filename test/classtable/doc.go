// Package classtable is a table of RuntimeClasses with what an API server says
// to each: accepted, or refused because of which fields.
//
// The tests of pkg/runtimeclass hold its validation to it. The same table can be
// sent to a real API server: create Case.Class by a dry run, or create Case.Old
// and replace it by Case.Class, and compare the fields of the causes in the
// answer with Case.AtServer. Names repeat, so nothing of it is to be left there.
package classtable
