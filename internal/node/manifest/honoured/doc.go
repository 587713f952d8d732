// Package honoured has the fields of each kind that mean something on one machine. A
// field that is set must be in the table of its kind, or the manifest is refused with the
// field's path. The tables are also where the matrix in the user guide comes from.
//
// It knows names of fields and no types of objects: what a value means is for others.
package honoured
