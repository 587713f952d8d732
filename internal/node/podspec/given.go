package podspec

import (
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Given is what a container gets beside its spec, for the devices that it asks for.
type Given struct {
	Devices     []*runtimeapi.Device
	CDI         []*runtimeapi.CDIDevice
	Mounts      []*runtimeapi.Mount
	Env         map[string]string // the container's own variables go before
	Annotations map[string]string
}

// give adds what there is to a configuration, before the variables of the container.
func (g Given) give(cfg *runtimeapi.ContainerConfig, own map[string]string) {
	cfg.Devices, cfg.CDIDevices, cfg.Mounts = g.Devices, g.CDI, slices.Concat(cfg.Mounts, g.Mounts)
	for _, key := range slices.Sorted(maps.Keys(g.Annotations)) {
		annotate(cfg, key, g.Annotations[key])
	}
	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		if _, has := own[name]; !has {
			cfg.Envs = append(cfg.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(g.Env[name])})
		}
	}
}
