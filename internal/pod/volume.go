package pod

// ImageVolumeMountFailed is in every error about the volume of an image. It is
// the CRI's word for that, by which people and tools find it in a pod's events.
const ImageVolumeMountFailed = "ImageVolumeMountFailed"

// VolumeRequest asks for the content of an image where a mount of a container
// is to find it.
type VolumeRequest struct {
	Container ContainerID
	Index     int      // of the mount in the container's configuration
	Lower     []string // the layers' folders, topmost first
	Label     string   // of every file, for SELinux; "" where there is none
}

// Images are the ids of all images that the container uses.
func (c *Container) Images() []string {
	var out []string
	if c.Image.ID != "" {
		out = append(out, c.Image.ID)
	}
	for _, id := range c.Image.Volumes {
		if id != "" {
			out = append(out, id)
		}
	}
	return out
}
