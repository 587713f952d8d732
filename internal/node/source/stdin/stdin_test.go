package stdin

import (
	"context"
	"io"
	"strings"
	"testing"

	"fairlead.run/internal/node/source"
)

const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"

func TestSource(t *testing.T) {
	for text, want := range map[string]string{
		pod:                     "",
		strings.Repeat(pod, 2):  "already set",
		"":                      "standard input: holds no document",
		pod + "---\n" + pod:     "is defined twice",
		"apiVersion: v1\nkind:": "apiVersion and kind are required",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var got []source.Set
		err := New(strings.NewReader(text), func(s source.Set) {
			got = append(got, s)
			cancel()
		}).Run(ctx)
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", err, got)
		}
		switch {
		case want == "" && (got[0].Objects == nil || len(got[0].Objects.Pods) != 1 || len(got[0].Problems) > 0):
			t.Errorf("%+v", got[0])
		case want != "" && (got[0].Objects != nil || len(got[0].Problems) != 1 || !strings.Contains(got[0].Problems[0].Err.Error(), want)):
			t.Errorf("%q: %+v, want %s", text, got[0], want)
		}
	}
}

// TestEndsWithoutInput ends while nobody has written anything.
func TestEndsWithoutInput(t *testing.T) {
	in, out := io.Pipe()
	defer func() { _ = out.Close() }() // and the read that was left behind
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(in, func(s source.Set) { t.Errorf("%+v", s) }).Run(ctx); err != nil {
		t.Error(err)
	}
}
