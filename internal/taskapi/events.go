package taskapi

import (
	"net"
)

// AcceptEvents answers everybody who calls on a socket that all is well, until it
// is closed. A shim that nobody listens to stops working once its queue of events
// is full; what they tell is known from Wait.
func AcceptEvents(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go answerEvents(conn)
	}
}

func answerEvents(conn net.Conn) {
	defer conn.Close()
	for {
		kind, stream, _, err := readFrame(conn)
		if err != nil {
			return
		}
		if kind != typeRequest {
			continue
		}
		// A response without a status and a payload is success, and empty.
		if _, err := conn.Write(frame(typeResponse, stream, nil)); err != nil {
			return
		}
	}
}
