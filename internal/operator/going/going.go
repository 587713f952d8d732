// Package going tells of objects that are being deleted. Such an object is still there
// under its name, and is none that anybody should count on: another of the name can be
// made only when it is gone, for which its finalizers may take long.
package going

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Err says that what is wanted is there, and about to go.
var Err = errors.New("is being deleted")

// Of is Err of an object that is being deleted, with what holds it; nil of another one.
func Of(o client.Object) error {
	if o.GetDeletionTimestamp() == nil {
		return nil
	}
	return fmt.Errorf("%s %w%s", Name(o), Err, Held(o))
}

// Held is what keeps an object that is being deleted, as the end of a sentence.
func Held(o client.Object) string {
	if all := o.GetFinalizers(); len(all) > 0 {
		return " and waits for its finalizers: " + strings.Join(all, ", ")
	}
	return ""
}

// Anew is what to say of Err where another object is made in that one's place.
func Anew(err error) string { return err.Error() + "; it is made anew when it is gone" }

// Name is an object for people.
func Name(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kind == "" { // only objects that are read as JSON always know it
		kind = reflect.TypeOf(o).Elem().Name()
	}
	return kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}
