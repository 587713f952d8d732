package pod

// PluginEvent is what NRI plugins are told of a pod or a container.
type PluginEvent int

// The events of pods, then those of containers. Creating and updating have
// calls of their own, because plugins answer them.
const (
	PluginRunPod PluginEvent = iota
	PluginStopPod
	PluginRemovePod
	PluginUpdatedPod
	PluginCreated
	PluginStart
	PluginStarted
	PluginUpdated
	PluginStopped
	PluginRemoved
	// PluginUnmade takes back that a container is being created.
	PluginUnmade
)

// Adjusted is what NRI plugins made of a container. The rest of what they
// changed is in config.json, which is written once.
type Adjusted struct {
	// Fields are what they changed, as NRI names them: "env", "mounts", ...
	Fields []string `json:"fields,omitempty"`
	// Limits are in force in place of Config.Resources; nil if those are.
	Limits *Resources `json:"limits,omitempty"`
	// CgroupsPath is linux.cgroupsPath; "" if it is where Fairlead puts it.
	CgroupsPath string `json:"cgroupsPath,omitempty"`
}

// Limits are those in force: what the caller asked for, or what NRI plugins made
// of that. They may be nil.
func (c *Container) Limits() *Resources {
	if c.Adjusted != nil && c.Adjusted.Limits != nil {
		return c.Adjusted.Limits
	}
	return c.Config.Resources
}

// WithLimits returns a copy of the container, of which the caller asked for want
// and plugins made final; final nil means that they changed nothing.
func (c *Container) WithLimits(want, final *Resources) *Container {
	out := *c
	out.Config.Resources = c.Config.Resources.With(want)
	if final == nil {
		final = want
		if c.Adjusted == nil || c.Adjusted.Limits == nil {
			return &out
		}
	}
	adjusted := Adjusted{}
	if c.Adjusted != nil {
		adjusted = *c.Adjusted
	}
	adjusted.Limits = c.Limits().With(final)
	out.Adjusted = &adjusted
	return &out
}
