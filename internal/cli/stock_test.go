package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/garbage"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/stock"
)

func TestStockFlags(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string // part of the error
		so   func(s stock.Settings) bool
	}{
		{"", "", func(s stock.Settings) bool {
			return s.Parallel == 5 && s.Verify == images.NeverVerifyPreloadedImages && s.Images == garbage.DefaultImagePolicy && s.Dead == garbage.DefaultContainerPolicy && s.Logs.MaxSize.Value() == 10<<20 && s.Logs.MaxFiles == 5 && s.Logs.Workers == 1 && s.Logs.Every == 10*time.Second
		}},
		{"--serialize-image-pulls", "", func(s stock.Settings) bool { return s.Parallel == 1 }},
		{"--max-parallel-image-pulls 0", "", func(s stock.Settings) bool { return s.Parallel == 0 }},
		{"--max-parallel-image-pulls -1", "less than 0", nil},
		{"--serialize-image-pulls --max-parallel-image-pulls 3", "leave one of them out", nil},
		{"--serialize-image-pulls --max-parallel-image-pulls 1", "", func(s stock.Settings) bool { return s.Parallel == 1 }},
		{"--image-credential-provider-config /c", "go together", nil},
		{"--image-credential-provider-bin-dir /c", "go together", nil},
		{"--image-credential-provider-config /c --image-credential-provider-bin-dir /d", "", func(s stock.Settings) bool {
			return s.Providers == stock.Providers{Config: "/c", Dir: "/d"}
		}},
		{"--image-pull-credentials-verification-policy AlwaysVerify", "", func(s stock.Settings) bool { return s.Verify == images.AlwaysVerify }},
		{"--image-gc-high-threshold 90 --image-gc-low-threshold 70 --minimum-image-ttl-duration 1m --image-maximum-gc-age 24h", "", func(s stock.Settings) bool {
			return s.Images == garbage.ImagePolicy{HighPercent: 90, LowPercent: 70, MinAge: time.Minute, MaxAge: 24 * time.Hour}
		}},
		{"--container-log-max-size 1Ki --container-log-max-files 3", "", func(s stock.Settings) bool { return s.Logs.MaxSize.Value() == 1024 && s.Logs.MaxFiles == 3 }},
		{"--container-log-max-size -1", "", func(s stock.Settings) bool { return s.Logs.MaxSize.Value() == -1 }},
		{"--container-log-max-size 10Mb", "no size", nil},
		{"--container-log-max-size 0", "at least one byte", nil},
		{"--container-log-max-workers 4 --container-log-monitor-interval 3s", "", func(s stock.Settings) bool { return s.Logs.Workers == 4 && s.Logs.Every == 3*time.Second }},
		{"--container-log-max-workers 0", "1 is the least", nil},
		{"--container-log-monitor-interval 2s", "3s is the least", nil},
		{"--registry-qps 3 --registry-burst 4", "", func(s stock.Settings) bool { return s.Rate == images.Rate{PerSecond: 3, Burst: 4} }},
		{"--registry-qps -1", "0 or more", nil},
		{"--registry-burst 0", "1 or more", nil},
		{"--container-log-max-files 1", "2 is the least", nil},
		{"--maximum-dead-containers-per-container 0 --maximum-dead-containers 7 --minimum-container-ttl-duration 1m", "", func(s stock.Settings) bool {
			return s.Dead == garbage.ContainerPolicy{MinAge: time.Minute, PerPod: 0, OfAllPods: 7}
		}},
	} {
		var f stockFlags
		cmd := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error { return f.check(cmd) }, SilenceErrors: true, SilenceUsage: true}
		f.add(cmd)
		cmd.SetArgs(strings.Fields(tt.args))
		err := cmd.Execute()
		switch {
		case tt.want == "" && (err != nil || !tt.so(f.Settings)):
			t.Errorf("%s: %+v, %v", tt.args, f.Settings, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, new(usageError))):
			t.Errorf("%s: %v", tt.args, err)
		}
	}
}
