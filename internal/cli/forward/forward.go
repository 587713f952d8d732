// Package forward is the local end of port-forward: which local ports stand for which
// ports of a pod, and a listener for each of them.
//
// It does not know how a connection gets to the pod; package remote does.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Port is a local port and the port of a pod that it stands for.
type Port struct {
	Local  uint16 // 0 for any that is free
	Remote uint16
}

// Parse reads ports as people write them: REMOTE, LOCAL:REMOTE, or :REMOTE for any local
// port that is free. Known gives the number of what is no number, but a name.
func Parse(texts []string, known func(name string) (uint16, error)) ([]Port, error) {
	var out []Port
	for _, text := range texts {
		local, remote, both := strings.Cut(text, ":")
		if !both {
			local, remote = "", local
		}
		p := Port{}
		var err error
		if local != "" {
			p.Local, err = number(local, 0)
		}
		name := len(validation.IsValidPortName(remote)) == 0
		if err == nil && !name {
			p.Remote, err = number(remote, 1)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no port: %w; write REMOTE, LOCAL:REMOTE, or :REMOTE for any local port that is free", text, err)
		}
		if name {
			if p.Remote, err = known(remote); err != nil {
				return nil, err
			}
		}
		if !both {
			p.Local = p.Remote
		}
		out = append(out, p)
	}
	return out, nil
}

func number(text string, least uint64) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < least {
		return 0, fmt.Errorf("%q is no number from %d to 65535", text, least)
	}
	return uint16(n), nil
}

// Localhost stands for the addresses of the loopback.
const Localhost = "localhost"

// Listener is one, and the port of the pod that it stands for.
type Listener struct {
	net.Listener
	Remote uint16
}

// Local is the port that it listens at.
func (l Listener) Local() int { return l.Addr().(*net.TCPAddr).Port }

// Listeners are all of a command.
type Listeners []Listener

// Listen listens at each address for each port, or at none of them. An address is that of
// an interface, or localhost, of which one family is enough.
func Listen(addresses []string, ports []Port) (Listeners, error) {
	var out Listeners
	for _, p := range ports {
		for _, address := range addresses {
			more, err := listen(address, p)
			if err != nil {
				return nil, errors.Join(err, out.Close())
			}
			out = append(out, more...)
		}
	}
	return out, nil
}

func listen(address string, p Port) (Listeners, error) {
	if address != Localhost {
		if net.ParseIP(address) == nil {
			return nil, fmt.Errorf("%q is no address to listen at; give addresses of this machine, or %s", address, Localhost)
		}
		l, err := open(address, p)
		return Listeners{l}, err
	}
	var out Listeners
	var errs []error
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		l, err := open(loopback, p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, l)
		p.Local = uint16(l.Local()) // one port for both
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

func open(ip string, p Port) (Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(p.Local)))
	if err != nil {
		return Listener{}, fmt.Errorf("%w; :%d takes any local port that is free", err, p.Remote)
	}
	return Listener{l, p.Remote}, nil
}

// Close ends them all.
func (l Listeners) Close() error {
	var errs []error
	for _, one := range l {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// pause is how long to wait where no connection can be taken for now, as all descriptors
// are in use.
const pause = 100 * time.Millisecond

// Run passes each connection that comes to carry, in a goroutine of its own, until ctx
// ends. It closes the listeners, and returns when the last carry has. What carry is given
// is closed when it returns, and when ctx ends.
func (l Listeners) Run(ctx context.Context, carry func(ctx context.Context, conn net.Conn, from Listener)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	errs := make([]error, len(l))
	var all sync.WaitGroup
	for i, one := range l {
		all.Go(func() {
			errs[i] = one.run(ctx, carry)
			cancel() // none goes on alone
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (l Listener) run(ctx context.Context, carry func(context.Context, net.Conn, Listener)) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen at %s: %w", l.Addr(), err)
		case err != nil:
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		connections.Go(func() {
			defer func() { _ = conn.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			carry(ctx, conn, l)
		})
	}
}
