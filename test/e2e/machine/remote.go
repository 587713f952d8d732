package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// service is the name of the orders on the wire.
const service = "Machine"

// orders is a machine as net/rpc wants its methods: one argument, and a place for the answer.
type orders struct{ on Machine }

// Ending is the order to end a program.
type Ending struct {
	Name   string
	Signal syscall.Signal
}

// File is the order to write one.
type File struct{ Path, Data string }

// Address is where somebody may listen.
type Address struct{ Network, Address string }

// Start is that of Machine; so are the others.
func (o *orders) Start(p Program, _ *bool) error     { return o.on.Start(p) }
func (o *orders) End(e Ending, _ *bool) error        { return o.on.End(e.Name, e.Signal) }
func (o *orders) Write(f File, _ *bool) error        { return o.on.Write(f.Path, f.Data) }
func (o *orders) Remove(path string, _ *bool) error  { return o.on.Remove(path) }
func (o *orders) Accepts(a Address, _ *bool) error   { return o.on.Accepts(a.Network, a.Address) }
func (o *orders) Ended(name string, yes *bool) error { return answer(yes)(o.on.Ended(name)) }
func (o *orders) Read(pattern string, data *string) error {
	return answer(data)(o.on.Read(pattern))
}

// SetClock is the order to have the time that it is here.
func (o *orders) SetClock(now time.Time, _ *bool) error {
	to := unix.NsecToTimespec(now.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &to)
}

// answer puts a result where net/rpc wants it.
func answer[T any](to *T) func(T, error) error {
	return func(result T, err error) error {
		*to = result
		return err
	}
}

// Serve lets those who connect give orders to a machine, until the listener fails.
func Serve(l net.Listener, on Machine) error {
	s := rpc.NewServer()
	if err := s.RegisterName(service, &orders{on}); err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go s.ServeConn(conn) // until the other side hangs up
	}
}

// Remote is a machine that takes orders.
type Remote struct {
	client   *rpc.Client
	patience time.Duration
}

// Dial connects to a machine that Serve serves. patience is how long an order may
// take; after that the machine is taken for dead.
func Dial(ctx context.Context, address string, patience time.Duration) (*Remote, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Remote{rpc.NewClient(conn), patience}, nil
}

// Close hangs up.
func (r *Remote) Close() error { return r.client.Close() }

// SetClock sets the machine's clock by that of this one. What reads its clock when it
// boots has whole seconds, and those who compare times of both would see time run backwards.
func (r *Remote) SetClock() error { return r.order("SetClock", time.Now(), new(bool)) }

func (r *Remote) order(name string, arg, reply any) error {
	call := r.client.Go(service+"."+name, arg, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-time.After(r.patience):
		return errors.Join(fmt.Errorf("the node's machine has not answered the order %s in %v", name, r.patience), r.Close())
	}
}

// Start is that of Machine; so are the others.
func (r *Remote) Start(p Program) error { return r.order("Start", p, new(bool)) }

// End implements Machine.
func (r *Remote) End(name string, signal syscall.Signal) error {
	return r.order("End", Ending{name, signal}, new(bool))
}

// Ended implements Machine.
func (r *Remote) Ended(name string) (yes bool, err error) {
	err = r.order("Ended", name, &yes)
	return yes, err
}

// Read implements Machine.
func (r *Remote) Read(pattern string) (data string, err error) {
	err = r.order("Read", pattern, &data)
	return data, err
}

// Write implements Machine.
func (r *Remote) Write(path, data string) error {
	return r.order("Write", File{path, data}, new(bool))
}

// Remove implements Machine.
func (r *Remote) Remove(path string) error { return r.order("Remove", path, new(bool)) }

// Accepts implements Machine.
func (r *Remote) Accepts(network, address string) error {
	return r.order("Accepts", Address{network, address}, new(bool))
}
