package main

import (
	"net"
	"strings"
	"testing"
)

func TestAsk(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		b := make([]byte, 100)
		n, from, err := server.ReadFrom(b)
		if err != nil {
			return // the test says so
		}
		_, _ = server.WriteTo([]byte("you said "+string(b[:n])), from)
	}()
	host, port, err := net.SplitHostPort(server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := ask([]string{"-w", "60", "-u", host, port}, strings.NewReader("hostName\n"), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != "you said hostName\n" {
		t.Errorf("the answer is %q", out.String())
	}
	if err := ask([]string{host, port}, strings.NewReader(""), &out); err == nil {
		t.Error("it took TCP, which it does not know")
	}
}

func TestShell(t *testing.T) {
	for want, environment := range map[string][]string{
		"/bin/busybox": {"PATH=/bin", "_x1=a-b", "EMPTY="},
		"/bin/bash":    {"PATH=/bin", "data-1=x"},
	} {
		if got := shell(environment); got != want {
			t.Errorf("with %q it is %s, want %s", environment, got, want)
		}
	}
}
