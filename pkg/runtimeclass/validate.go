package runtimeclass

import (
	"fmt"
	"strings"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Validate says what is wrong with a class, one message per fault, each
// starting with the path of its field. An empty result means it is sound.
func Validate(c *nodev1.RuntimeClass) []string {
	var faults []string
	report := func(path string, problems []string) {
		if len(problems) > 0 {
			faults = append(faults, path+": "+strings.Join(problems, "; "))
		}
	}
	if c.Name == "" {
		faults = append(faults, "metadata.name: is required")
	} else {
		report("metadata.name", validation.IsDNS1123Subdomain(c.Name))
	}
	if c.Namespace != "" {
		faults = append(faults, "metadata.namespace: a RuntimeClass belongs to no namespace")
	}
	if c.Handler == "" {
		faults = append(faults, "handler: is required")
	} else {
		report("handler", validation.IsDNS1123Label(c.Handler))
	}
	if c.Overhead != nil {
		for name, q := range c.Overhead.PodFixed {
			if q.Sign() < 0 {
				faults = append(faults, fmt.Sprintf("overhead.podFixed[%s]: %s is negative", name, q.String()))
			}
		}
	}
	if c.Scheduling != nil {
		for key, value := range c.Scheduling.NodeSelector {
			report("scheduling.nodeSelector["+key+"]", append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...))
		}
	}
	return faults
}
