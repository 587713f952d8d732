// Package errtext has what people are told of an error: in an event, or in the status of a pod.
// What fails in the same way reads the same each time, so that an event that comes again is
// counted, and a status is not written again. Logs have errors as they are.
package errtext

import (
	"regexp"
	"strings"

	grpcstatus "google.golang.org/grpc/status"
)

// Full is what an error of a runtime says, without grpc's frame.
func Full(err error) string {
	if s, ok := grpcstatus.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// Of is what an error of a runtime says, as often as it comes.
func Of(err error) string { return Stable(Full(err)) }

// changing is what is another at each attempt: what nobody but a log can tell anything of.
var changing = []struct {
	is *regexp.Regexp
	to string
}{
	// How long an operation of Fairlead's runtime has been at it.
	{regexp.MustCompile(`(at stage "(?:[^"\\]|\\.)*") after [0-9][0-9.a-zµ]*`), "$1"},
	{regexp.MustCompile(`has been at work for [0-9][0-9.a-zµ]* and is (at stage)`), "is $1"},
	// Ids as they are written in short.
	{regexp.MustCompile(`\b((?:[Cc]ontainer|[Pp]od|[Ss]andbox)(?: with)?(?: id)?[ =:]+"?)[0-9a-f]{12,13}\b`), "$1<id>"},
	// What runtimes name after attempts: namespaces of networks, their interfaces, processes.
	{regexp.MustCompile(`/netns/[0-9A-Za-z-]+`), "/netns/<id>"},
	{regexp.MustCompile(`\bveth[0-9a-f]{8}\b`), "veth<id>"},
	{regexp.MustCompile(`/proc/[0-9]+\b`), "/proc/<pid>"},
	// Files that are not whole yet: those of volumes, and of images that are pulled.
	{regexp.MustCompile(`\.\.[0-9]{4}(?:_[0-9]{2}){5}\.[0-9]+`), "..<time>"},
	{regexp.MustCompile(`/incoming/[0-9]+\b`), "/incoming/<id>"},
	// The port that a connection came from.
	{regexp.MustCompile(`:[0-9]{1,5}->`), "->"},
}

// id is that of a sandbox or container, or a digest, which tells people something.
var id = regexp.MustCompile(`(?:sha256[:/])?\b[0-9a-f]{64}\b`)

// Stable is a text without what is another at each attempt.
func Stable(text string) string {
	for _, c := range changing {
		text = c.is.ReplaceAllString(text, c.to)
	}
	return id.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "sha256") {
			return found
		}
		return "<id>"
	})
}
