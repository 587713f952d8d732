package cli

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/source/gather"
	"fairlead.run/internal/node/source/url"
)

// urlHeaderFlag has headers, which may be secrets.
const urlHeaderFlag = "manifest-url-header"

// addressFlags name an address that serves manifests, as a kubelet's flags do.
type addressFlags struct {
	url     string
	headers []string
	every   time.Duration
}

func (f *addressFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.url, "manifest-url", "", "address that serves manifests: http:// or https://")
	s.StringArrayVar(&f.headers, urlHeaderFlag, nil, "header of the requests to that address, NAME:VALUE; may be given several times")
	s.DurationVar(&f.every, "http-check-frequency", url.DefaultInterval, "time between two such requests")
}

// address is what the flags come to.
func (f *addressFlags) address() (gather.Address, error) {
	out := gather.Address{URL: f.url, Header: http.Header{}, Interval: f.every}
	for _, text := range f.headers {
		name, value, ok := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n") {
			// Not the text, which may hold a password.
			return out, usageError{fmt.Errorf("--manifest-url-header number %d is not NAME:VALUE", len(out.Header)+1)}
		}
		out.Header.Add(name, strings.TrimSpace(value))
	}
	if f.url == "" && len(f.headers) > 0 {
		return out, usageError{fmt.Errorf("--manifest-url-header needs --manifest-url")}
	}
	if f.every <= 0 {
		return out, usageError{fmt.Errorf("--http-check-frequency is %s; it has to be more than 0", f.every)}
	}
	return out, nil
}
