package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// step is one operation of a JSON patch.
type step struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// inject has the configurations believe in a bundle. Replicas that see a change at the
// same time all want to write it.
func (m *Managed) inject(ctx context.Context, bundle []byte) (err error) {
	for range writeTries {
		if err = m.injectOnce(ctx, bundle); !errors.Is(err, errTry) {
			return err
		}
	}
	return err
}

func (m *Managed) injectOnce(ctx context.Context, bundle []byte) error {
	var failed []error
	if m.place.Mutating != "" {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		failed = append(failed, m.injectInto(ctx, configuration{
			resource: "mutatingwebhookconfigurations", name: m.place.Mutating, object: config, meta: &config.ObjectMeta,
			clients: func() (out []*admissionregistrationv1.WebhookClientConfig) {
				for i := range config.Webhooks {
					out = append(out, &config.Webhooks[i].ClientConfig)
				}
				return out
			},
		}, bundle))
	}
	if m.place.Validating != "" {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		failed = append(failed, m.injectInto(ctx, configuration{
			resource: "validatingwebhookconfigurations", name: m.place.Validating, object: config, meta: &config.ObjectMeta,
			clients: func() (out []*admissionregistrationv1.WebhookClientConfig) {
				for i := range config.Webhooks {
					out = append(out, &config.Webhooks[i].ClientConfig)
				}
				return out
			},
		}, bundle))
	}
	return errors.Join(failed...)
}

// configuration is what the two kinds have in common.
type configuration struct {
	resource, name string
	object         runtime.Object
	meta           *metav1.ObjectMeta
	clients        func() []*admissionregistrationv1.WebhookClientConfig
}

func (m *Managed) injectInto(ctx context.Context, c configuration, bundle []byte) error {
	rest := m.client.REST(admissionregistrationv1.SchemeGroupVersion)
	err := rest.Get().Resource(c.resource).Name(c.name).Do(ctx).Into(c.object)
	m.tellAbsent(c, apierrors.IsNotFound(err))
	switch {
	case apierrors.IsNotFound(err):
		return nil // nobody asks yet, and whoever writes it can wait for a replica that is ready
	case err != nil:
		return fmt.Errorf("read %s %s: %w", c.resource, c.name, err)
	}
	// Indexes mean the same webhooks only in this version of the object.
	patch := []step{{Op: "test", Path: "/metadata/resourceVersion", Value: c.meta.ResourceVersion}}
	for i, client := range c.clients() {
		if !bytes.Equal(client.CABundle, bundle) {
			patch = append(patch, step{Op: "add", Path: fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), Value: bundle})
		}
	}
	if len(patch) == 1 {
		return nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("write a patch of %s %s: %w", c.resource, c.name, err)
	}
	err = rest.Patch(types.JSONPatchType).Resource(c.resource).Name(c.name).Body(text).Do(ctx).Error()
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsConflict(err): // by the test of the version, most of the time
		return fmt.Errorf("put the authority into %s %s: %w: %w", c.resource, c.name, errTry, err)
	case err != nil:
		return fmt.Errorf("put the authority into %s %s: %w", c.resource, c.name, err)
	}
	m.log.Info("put the authority of the webhook into a configuration", "resource", c.resource, "name", c.name)
	return nil
}

// tellAbsent logs once that a configuration is not there, and remembers it.
func (m *Managed) tellAbsent(c configuration, absent bool) {
	if absent && !m.absent[c.resource] {
		m.log.Warn("a configuration of the webhook is missing: API servers do not ask it; apply 30-configurations.yaml of the manifests, or the chart", "resource", c.resource, "name", c.name)
	}
	m.absent[c.resource] = absent
}
