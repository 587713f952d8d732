package streaming

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestOlderSPDYProtocols(t *testing.T) {
	for _, protocol := range spdyProtocols {
		t.Run(protocol, func(t *testing.T) {
			s := serve(t, &fakeCore{}, nil)
			dial := func(raw string) (remotecommand.Executor, error) {
				u, err := url.Parse(raw)
				if err != nil {
					return nil, err
				}
				transport, upgrader, err := spdy.RoundTripperFor(&restclient.Config{})
				if err != nil {
					return nil, err
				}
				return remotecommand.NewSPDYExecutorForProtocols(transport, upgrader, "POST", u, protocol)
			}
			var stdout bytes.Buffer
			if protocol == "channel.k8s.io" { // its clients drop output once they see an error
				if err := stream(t, s, dial, shell("echo hi", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: &stdout}); err != nil || stdout.String() != "hi\n" {
					t.Errorf("got %q and %v", stdout.String(), err)
				}
				return
			}
			err := stream(t, s, dial, shell("echo hi; exit 9", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: &stdout})
			if stdout.String() != "hi\n" || err == nil {
				t.Fatalf("got %q and %v", stdout.String(), err)
			}
			var code exec.CodeExitError
			if protocol == "v4.channel.k8s.io" {
				if !errors.As(err, &code) || code.Code != 9 {
					t.Errorf("got %v, want exit code 9", err)
				}
			} else {
				contains(t, err.Error(), "exit code 9")
			}
		})
	}
}

// Clients in browsers speak text, with base64 in it.
func TestWebSocketProtocolsByHand(t *testing.T) {
	for protocol, p := range wsProtocols {
		t.Run("protocol "+protocol, func(t *testing.T) {
			s := serve(t, &fakeCore{}, nil)
			raw, _ := s.ExecURL(shell("read x; echo got $x; exit 6", &cri.ExecRequest{Stdin: true, Stdout: true}))
			d := websocket.Dialer{}
			if protocol != "" {
				d.Subprotocols = []string{"unknown.k8s.io", protocol}
			}
			c, _, err := d.Dial("ws"+strings.TrimPrefix(raw, "http"), http.Header{"Origin": {"https://elsewhere.example"}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			kind, message := websocket.BinaryMessage, append([]byte{channelStdin}, "word\n"...)
			if p.base64 {
				kind, message = websocket.TextMessage, []byte("0"+base64.StdEncoding.EncodeToString([]byte("word\n")))
			}
			for _, m := range [][]byte{{}, {77, 1, 2}, {channelStdout, 1}, message} { // odd ones are dropped
				if err := c.WriteMessage(kind, m); err != nil {
					t.Fatal(err)
				}
			}
			got := map[byte]string{}
			for {
				_, m, err := c.ReadMessage()
				if err != nil {
					if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
						t.Error(err)
					}
					break
				}
				channel, body := m[0], m[1:]
				if p.base64 {
					channel -= '0'
					body, _ = base64.StdEncoding.DecodeString(string(body))
				}
				got[channel] += string(body)
			}
			if got[channelStdout] != "got word\n" {
				t.Errorf("got %q", got)
			}
			if want := map[bool]string{true: `"message":"6"`, false: "command terminated with exit code 6"}[p.jsonStatus]; !strings.Contains(got[channelError], want) {
				t.Errorf("got status %q", got[channelError])
			}
		})
	}
}

func TestRefusedUpgrades(t *testing.T) {
	s := serve(t, &fakeCore{}, nil)
	for name, change := range map[string]func(*http.Request){
		"no upgrade":           func(*http.Request) {},
		"unknown SPDY version": func(r *http.Request) { r.Header.Set("X-Stream-Protocol-Version", "v99") },
		"unknown WebSocket protocol": func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Sec-Websocket-Version", "13")
			r.Header.Set("Sec-Websocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
			r.Header.Set("Sec-Websocket-Protocol", "v99.channel.k8s.io")
		},
		"other method": func(r *http.Request) { r.Method = "PUT" },
	} {
		u, _ := s.ExecURL(shell("true", &cri.ExecRequest{Stdout: true}))
		r, _ := http.NewRequest("GET", u, nil)
		change(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode > 499 || len(b) == 0 {
			t.Errorf("%s: got status %d and %q", name, resp.StatusCode, b)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
