package pace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAfter(t *testing.T) {
	p := &Pace{First: time.Second, Most: 5 * time.Second}
	failure := errors.New("refused")
	for i, want := range []time.Duration{1, 2, 4, 5, 5} {
		want *= time.Second
		if got := p.After(failure); got < want || got > want+want/5 {
			t.Errorf("after failure %d it waits %s, want %s and up to a fifth more", i+1, got, want)
		}
	}
	if got := p.After(apierrors.NewTooManyRequests("later", 30)); got != 30*time.Second {
		t.Errorf("it waits %s, and the API server has asked for 30s", got)
	}
	p.Reset()
	if got := p.After(failure); got > 1200*time.Millisecond {
		t.Errorf("after a success it waits %s", got)
	}
}

func TestAway(t *testing.T) {
	for err, want := range map[error]bool{
		&url.Error{Op: "Get", URL: "https://api", Err: errors.New("connection refused")}: true,
		context.DeadlineExceeded:                                 true,
		apierrors.NewTooManyRequests("later", 1):                 true,
		apierrors.NewServiceUnavailable("starting"):              true,
		apierrors.NewForbidden(schema.GroupResource{}, "a", nil): false,
		apierrors.NewConflict(schema.GroupResource{}, "a", nil):  false,
		apierrors.NewInternalError(errors.New("broken")):         false,
		errors.New("two drivers say something else"):             false,
	} {
		if got := Away(fmt.Errorf("create a pod: %w", err)); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

func TestSleepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !Sleep(ctx, 59*time.Second) {
			t.Error("the context has not ended yet")
		}
		begun := time.Now()
		if Sleep(ctx, time.Hour) || time.Since(begun) != time.Second {
			t.Errorf("it slept %s with a context that ends in a second", time.Since(begun))
		}
	})
}
