package pod

import "time"

// MetricFamily is what monitoring systems know under one name.
type MetricFamily struct {
	Name    string
	Help    string // for people
	Counter bool   // it only grows while its container runs; otherwise it is a gauge
	// Labels tell the values of one container apart. Those that say whose they
	// are do not count.
	Labels []string
}

// Metric is one value of a family.
type Metric struct {
	Family *MetricFamily
	Labels []string // as many as those of the family, in the same order
	Value  uint64
}

// Subject is what somebody asks about: a container, or a pod if Container is nil.
type Subject struct {
	Pod       *Record
	Container *Container
}

// Metrics are those of a container, or of a pod without its containers.
type Metrics struct {
	Cgroup string // path from the top of the hierarchy
	Values []Metric
	// At is when they were measured, if that was before they were asked for.
	At  time.Time
	Err error // why it could not be measured
}
