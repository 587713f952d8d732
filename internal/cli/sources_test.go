package cli

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/source/gather"
)

func TestAddressFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want gather.Address
		fail string // part of the error
	}{
		{nil, gather.Address{Header: http.Header{}, Interval: 20 * time.Second}, ""},
		{
			[]string{"--manifest-url", "http://x", "--manifest-url-header", "Authorization: Basic a,b", "--manifest-url-header", "x-a:1:2", "--manifest-url-header", "X-A:", "--http-check-frequency", "1s"},
			gather.Address{URL: "http://x", Header: http.Header{"Authorization": {"Basic a,b"}, "X-A": {"1:2", ""}}, Interval: time.Second},
			"",
		},
		{[]string{"--manifest-url", "http://x", "--manifest-url-header", "secret"}, gather.Address{}, "number 1 is not NAME:VALUE"},
		{[]string{"--manifest-url", "http://x", "--manifest-url-header", ": secret"}, gather.Address{}, "number 1 is not NAME:VALUE"},
		{[]string{"--manifest-url", "http://x", "--manifest-url-header", "a: b\nc: secret"}, gather.Address{}, "number 1 is not NAME:VALUE"},
		{[]string{"--manifest-url-header", "a:secret"}, gather.Address{}, "needs --manifest-url"},
		{[]string{"--http-check-frequency", "0s"}, gather.Address{}, "has to be more than 0"},
	} {
		var f addressFlags
		var got gather.Address
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) (err error) { got, err = f.address(); return err }, SilenceErrors: true, SilenceUsage: true}
		f.add(cmd)
		cmd.SetArgs(tt.args)
		err := cmd.Execute()
		switch {
		case tt.fail == "" && (err != nil || !reflect.DeepEqual(got, tt.want)):
			t.Errorf("%q: %+v, %v", tt.args, got, err)
		case tt.fail != "" && (err == nil || !strings.Contains(err.Error(), tt.fail) || strings.Contains(err.Error(), "secret") || !errors.As(err, new(usageError))):
			t.Errorf("%q: %v", tt.args, err)
		}
	}
}
