package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	config "fairlead.run/api/config/v1alpha1"
)

func TestWarnOfReach(t *testing.T) {
	for address, warned := range map[string]bool{
		"127.0.0.1:0": false, "127.8.9.1:80": false, "[::1]:9470": false, "localhost:1": false, "[::ffff:127.0.0.1]:1": false,
		"0.0.0.0:9470": true, "[::]:9470": true, ":9470": true, "10.0.0.7:9470": true, "[fd00::1]:1": true, "node.example:1": true,
	} {
		var log bytes.Buffer
		cfg := config.Default()
		cfg.Metrics.Address, cfg.Streaming.Address = address, address
		warnOfReach(cfg, slog.New(slog.NewTextHandler(&log, nil)))
		for _, key := range []string{"metrics.address", "streaming.address"} {
			if got := strings.Contains(log.String(), "key="+key+" address="); got != warned {
				t.Errorf("%s at %s: a warning: %t", key, address, got)
			}
		}
	}
	var log bytes.Buffer
	warnOfReach(config.Default(), slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Errorf("of the default: %s", &log)
	}
}
