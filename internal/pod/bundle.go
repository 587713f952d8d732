package pod

// BundleRequest is what an OCI bundle of a container is written from.
type BundleRequest struct {
	Record    *Record
	Container *Container
	Image     ImageConfig
	Rootfs    string // absolute; mounted already
	Handler   HandlerInfo
	Labels    Labels // the container's
}
