package cluster

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

// protobuf is smaller and faster than JSON; custom resources have none.
const protobuf = "application/vnd.kubernetes.protobuf"

// Client makes requests of one API server.
type Client struct {
	config *rest.Config
	http   *http.Client
	groups map[schema.GroupVersion]*rest.RESTClient
}

// NewClient makes one. It does not connect yet.
func NewClient(config *rest.Config) (*Client, error) {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", config.Host, err)
	}
	c := &Client{config: config, http: shared, groups: map[schema.GroupVersion]*rest.RESTClient{}}
	for _, gv := range Scheme().PrioritizedVersionsAllGroups() {
		if c.groups[gv], err = c.group(gv); err != nil {
			return nil, fmt.Errorf("make a client of %s for %s: %w", config.Host, gv, err)
		}
	}
	return c, nil
}

func (c *Client) group(gv schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	if gv != v1alpha1.SchemeGroupVersion && gv != gardener.SchemeGroupVersion {
		config.AcceptContentTypes = protobuf + "," + runtime.ContentTypeJSON
	}
	_, codecs := kinds()
	config.NegotiatedSerializer = codecs.WithoutConversion()
	return rest.RESTClientForConfigAndClient(config, c.http)
}

// Host is the address of the API server.
func (c *Client) Host() string { return c.config.Host }

// REST makes requests of one group and version of Scheme:
//
//	client.REST(corev1.SchemeGroupVersion).Get().Resource("namespaces").Name(name).Do(ctx).Into(&ns)
func (c *Client) REST(gv schema.GroupVersion) rest.Interface {
	if r := c.groups[gv]; r != nil {
		return r
	}
	panic("cluster: the scheme has no " + gv.String())
}

// JSON is what the API server has at a path, for kinds that Scheme does not know.
func (c *Client) JSON(ctx context.Context, path string) ([]byte, error) {
	text, err := c.REST(v1alpha1.SchemeGroupVersion).Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	return text, nil
}

// Class is a RuntimeClass as the API server has it now.
func (c *Client) Class(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	class := &nodev1.RuntimeClass{}
	if err := c.REST(nodev1.SchemeGroupVersion).Get().Resource("runtimeclasses").Name(name).Do(ctx).Into(class); err != nil {
		return nil, fmt.Errorf("get RuntimeClass %s: %w", name, err)
	}
	return class, nil
}

// Namespace is a namespace as the API server has it now.
func (c *Client) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	if err := c.REST(corev1.SchemeGroupVersion).Get().Resource("namespaces").Name(name).Do(ctx).Into(ns); err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return ns, nil
}

// List reads all objects of a resource of Scheme, and calls page with each part
// of the list: a *corev1.PodList for pods. The parts keep answers small.
func (c *Client) List(ctx context.Context, from schema.GroupVersionResource, page func(runtime.Object) error) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := c.REST(from.GroupVersion()).Get().Resource(from.Resource).
			VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Get()
		if err != nil {
			return fmt.Errorf("list %s: %w", from.Resource, err)
		}
		if err := page(list); err != nil {
			return fmt.Errorf("list %s: %w", from.Resource, err)
		}
		meta, ok := list.(metav1.ListInterface)
		if !ok || meta.GetContinue() == "" {
			return nil
		}
		options.Continue = meta.GetContinue()
	}
}

const pageSize = 500
