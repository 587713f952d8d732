// Package lasting says when people are told again of a failure that lasts: not at each
// attempt, and before API servers have forgotten the event that told of it.
package lasting

import "time"

// Again is how long one event will do: API servers forget them after an hour.
const Again = 30 * time.Minute

// Failure is what has failed, and when people were told. The zero value is that nothing has.
type Failure struct {
	text string
	at   time.Time
}

// Tell says whether people are to be told of it now, and takes it that they are.
func (f *Failure) Tell(text string) bool {
	now := time.Now()
	if text == f.text && now.Sub(f.at) < Again {
		return false
	}
	f.text, f.at = text, now
	return true
}

// Over says that it is over. The next failure is told, also one that is the same.
func (f *Failure) Over() { *f = Failure{} }
