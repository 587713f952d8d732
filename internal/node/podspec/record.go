package podspec

import (
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What the agent writes on a container when it makes it, and reads back after it
// was started anew itself.
const (
	AnnotationHash            = "fairlead.run/container-hash"
	AnnotationCrashes         = "fairlead.run/crashes"
	AnnotationTerminationPath = "fairlead.run/termination-path"
)

// Record is what an attempt carries with it, as nothing else remembers it.
type Record struct {
	Hash            string // of what it is made from; see Hash
	Crashes         int    // how many attempts before it ended in a row
	TerminationPath string // of the file on the node for its last words
}

// RecordOf reads it back from the annotations of a container. What is not there, or
// cannot be read, is empty.
func RecordOf(annotations map[string]string) Record {
	crashes, err := strconv.Atoi(annotations[AnnotationCrashes])
	if err != nil {
		crashes = 0
	}
	return Record{Hash: annotations[AnnotationHash], Crashes: max(crashes, 0), TerminationPath: annotations[AnnotationTerminationPath]}
}

func (r Record) annotate(cfg *runtimeapi.ContainerConfig) {
	if r.Hash != "" {
		annotate(cfg, AnnotationHash, r.Hash)
	}
	if r.Crashes > 0 {
		annotate(cfg, AnnotationCrashes, strconv.Itoa(r.Crashes))
	}
	if r.TerminationPath != "" {
		annotate(cfg, AnnotationTerminationPath, r.TerminationPath)
	}
}

func annotate(cfg *runtimeapi.ContainerConfig, key, value string) {
	if cfg.Annotations == nil {
		cfg.Annotations = map[string]string{}
	}
	cfg.Annotations[key] = value
}
