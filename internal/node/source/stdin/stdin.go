// Package stdin is what is written to the standard input of an agent, once, as a
// source of pods.
package stdin

import (
	"context"
	"io"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
)

// Source is one input.
type Source struct {
	in  io.Reader
	set func(source.Set)
}

// New makes a source that calls set once, from the goroutine of Run, when the input
// has ended. If it is not right, no objects are known: what runs is left as it is.
func New(in io.Reader, set func(source.Set)) *Source { return &Source{in: in, set: set} }

// Run reads, and waits for ctx to end. It returns nil then, and never before. A read
// that goes on is left behind.
func (s *Source) Run(ctx context.Context) error {
	texts, err := manifest.Read(ctx, []string{"-"}, s.in)
	if ctx.Err() != nil {
		return nil
	}
	s.set(set(texts, err))
	<-ctx.Done()
	return nil
}

func set(texts []manifest.Source, err error) source.Set {
	var files []*manifest.File
	for _, t := range texts {
		var f *manifest.File
		if f, err = manifest.DecodeFile(t); err == nil {
			files = append(files, f)
		}
	}
	if err != nil {
		return source.Set{Problems: []source.Problem{{Origin: "standard input", Err: err}}}
	}
	objects, problems := manifest.Merge(files)
	return source.Set{Objects: objects, Problems: problems}
}
