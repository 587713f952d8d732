package sentry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// processes answers for a container with these processes, which end when they are
// killed. One that is killed for the first time may leave another behind.
type processes struct {
	mu   sync.Mutex
	all  []process
	late map[int32]process // added when the process with that number is killed
}

func (c *processes) answer(method string, arg json.RawMessage) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if method == "containerManager.Processes" {
		var list []string
		for _, p := range c.all {
			list = append(list, fmt.Sprintf(`{"pid":%d,"ppid":%d,"pgid":%d,"cmd":"sh"}`, p.PID, p.PPID, p.Group))
		}
		return `{"success":true,"result":[` + strings.Join(list, ",") + `]}`
	}
	var args struct{ Signo, PID, Mode int32 }
	if json.Unmarshal(arg, &args) != nil || method != "containerManager.Signal" || args.Signo != 9 || args.Mode != toFirst {
		return `{"success":false,"err":"wrong request"}`
	}
	at := slices.IndexFunc(c.all, func(p process) bool { return p.PID == args.PID })
	if at < 0 {
		return `{"success":false,"err":"no such process"}`
	}
	c.all = slices.Delete(c.all, at, at+1)
	if p, ok := c.late[args.PID]; ok {
		c.all = append(c.all, p)
	}
	return `{"success":true}`
}

func TestKillTree(t *testing.T) {
	c := &processes{
		all: []process{
			{1, 0, 1},   // the container's first
			{10, 0, 10}, // the exec
			{11, 10, 10},
			{12, 11, 12}, // a group of its own
			{13, 1, 10},  // its parent has ended
			{20, 0, 20},  // another exec
			{21, 20, 20},
		},
		late: map[int32]process{12: {14, 12, 14}},
	}
	_, socket := sandbox(t, c.answer)
	if err := KillTree(context.Background(), socket, "c1", 10); err != nil {
		t.Fatal(err)
	}
	var left []int32
	for _, p := range c.all {
		left = append(left, p.PID)
	}
	if !slices.Equal(left, []int32{1, 20, 21}) {
		t.Errorf("%d are left", left)
	}
}
