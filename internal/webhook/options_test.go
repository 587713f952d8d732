package webhook_test

import (
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/webhook"
)

func TestOptions(t *testing.T) {
	for flag, change := range map[string]func(*webhook.Options){
		"":                            func(*webhook.Options) {},
		"listen":                      func(o *webhook.Options) { o.Listen = "9443" },
		"health":                      func(o *webhook.Options) { o.Health = "" },
		"namespace":                   func(o *webhook.Options) { o.Namespace = "a.b" },
		"service":                     func(o *webhook.Options) { o.Service = "" },
		"secret":                      func(o *webhook.Options) { o.Secret = "A" },
		"mutating-configuration":      func(o *webhook.Options) { o.Mutating = "_" },
		"validating-configuration":    func(o *webhook.Options) { o.Validating = "a b" },
		"legacy-crio-untrusted":       func(o *webhook.Options) { o.Legacy.CRIOUntrusted = "Kata" },
		"legacy-containerd-untrusted": func(o *webhook.Options) { o.Legacy.ContainerdUntrusted = "Kata" },
		"legacy-frakti-os-container":  func(o *webhook.Options) { o.Legacy.FraktiOSContainer = "Kata" },
		"legacy-frakti-unikernel":     func(o *webhook.Options) { o.Legacy.FraktiUnikernel = "Kata" },
		"legacy-windows-hyperv":       func(o *webhook.Options) { o.Legacy.WindowsHyperV = "Kata" },
		"client-name":                 func(o *webhook.Options) { o.ClientNames = []string{"kube-apiserver"} },
		"serve-as":                    func(o *webhook.Options) { o.ServeAs = []string{"127.0.0.1", "https://x"} },
		"exempt":                      func(o *webhook.Options) { o.Exempt = []string{""} },
		"virtualization-capability":   func(o *webhook.Options) { o.Capability = "nested" },
		"drain":                       func(o *webhook.Options) { o.Drain = time.Hour },
	} {
		o := webhook.Defaults()
		change(&o)
		err := o.Validate()
		if (err == nil) != (flag == "") || err != nil && (!strings.HasPrefix(err.Error(), "--"+flag+" ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("--%s: %v", flag, err)
		}
	}
	o := webhook.Options{}
	if err := o.Validate(); err == nil || strings.Count(err.Error(), "\n") < 4 {
		t.Errorf("not everything is told: %v", err)
	}
}
