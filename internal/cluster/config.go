package cluster

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.run/internal/errdefs"
)

// How many requests in a second are made besides watches. The caches answer
// nearly all; what they miss must not be queued behind five others.
const (
	requestsPerSecond = 100
	requestsAtOnce    = 200
)

// Config says which API server to talk to and as whom. The first of these that
// is there decides: the file kubeconfig, the files in $KUBECONFIG,
// ~/.kube/config, and the service account of the pod that this is running in.
// Context chooses in a kubeconfig; empty is its current one.
func Config(kubeconfig, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	source := kubeconfig
	if kubeconfig == "" {
		source = sourceOf()
	}
	if source == "" {
		if context != "" {
			return nil, fmt.Errorf("find context %s: there is neither $KUBECONFIG nor %s; name a file with --kubeconfig: %w", context, clientcmd.RecommendedHomeFile, errdefs.ErrNotFound)
		}
		return inCluster()
	}
	file, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", source, err)
	}
	// Unlike the loader that defers, it does not go on to the service account: a
	// typing error in a path must not lead to another cluster.
	config, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", source, err)
	}
	return tuned(config), nil
}

// sourceOf names the kubeconfigs that are to be read, or "" if there are none.
func sourceOf() string {
	if fromEnvironment := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); fromEnvironment != "" {
		return fromEnvironment
	}
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		return clientcmd.RecommendedHomeFile
	}
	return ""
}

func inCluster() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, fmt.Errorf("find a cluster: there is no --kubeconfig, no $KUBECONFIG, no %s, and this is no pod of a cluster: %w", clientcmd.RecommendedHomeFile, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read the service account of this pod: %w", err)
	}
	return tuned(config), nil
}

func tuned(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	config.UserAgent, config.WarningHandler = "fairlead", rest.NoWarnings{}
	return config
}
