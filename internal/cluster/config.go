package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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
	err = chosen(file, context)
	var config *rest.Config
	if err == nil {
		config, err = clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", source, err)
	}
	return tuned(config), nil
}

// chosen says which contexts there are where the one that is wanted is not there.
func chosen(file *clientcmdapi.Config, context string) error {
	name := cmp.Or(context, file.CurrentContext)
	if file.Contexts[name] != nil {
		return nil
	}
	text := fmt.Sprintf("there is no context %q", name)
	if name == "" {
		text = "it has no current-context"
	}
	if len(file.Contexts) == 0 {
		return fmt.Errorf("%s, nor any other: %w", text, errdefs.ErrNotFound)
	}
	return fmt.Errorf("%s; choose one of %s with --context: %w", text, strings.Join(slices.Sorted(maps.Keys(file.Contexts)), ", "), errdefs.ErrNotFound)
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
