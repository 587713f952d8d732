// Package images has the images of pods present when their containers are to
// start: it decides by the pull policy whether to ask the registry, tries the
// credentials of pull secrets and of the node, shares a pull among those that
// want the same, holds back what failed lately, and remembers with which
// credentials an image came to this node, so that a pod without them does not
// get it.
//
// It pulls by the CRI or by a Puller that it is given. It removes no image;
// that is garbage's.
package images
