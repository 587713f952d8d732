package join

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/cluster/objects"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/priority"
	"fairlead.run/internal/node/sysctl"
	"fairlead.run/internal/node/volume/unsupported"
)

// lookup finds what pods refer to. What cannot be had in time is an error: the pod waits
// for it, and asks again.
type lookup struct{ *objects.Objects }

// ConfigMap implements podspec.Lookup.
func (l lookup) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return soon(ctx, func(ctx context.Context) (*corev1.ConfigMap, error) { return l.Objects.ConfigMap(ctx, namespace, name) })
}

// Secret implements podspec.Lookup.
func (l lookup) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return soon(ctx, func(ctx context.Context) (*corev1.Secret, error) { return l.Objects.Secret(ctx, namespace, name) })
}

// Services implements podspec.Services. A static pod waits for none: it may be what an
// API server needs to run.
func (l lookup) Services(pod *corev1.Pod, namespace string) ([]*corev1.Service, error) {
	got, err := l.Objects.Services(namespace)
	if err != nil && priority.Static(pod) {
		return nil, nil
	}
	return got, err
}

// Claim implements volume.Claims.
func (l lookup) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return soon(ctx, func(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
		return l.Objects.Claim(ctx, namespace, name)
	})
}

// Volume implements volume.Claims.
func (l lookup) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return soon(ctx, func(ctx context.Context) (*corev1.PersistentVolume, error) { return l.Objects.Volume(ctx, name) })
}

// patience is how long a pod waits for an answer of the API server before it says so.
const patience = 30 * time.Second

// soon asks the API server for an object. That there is none is no error, and nil.
func soon[O any](ctx context.Context, ask func(context.Context) (*O, error)) (*O, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := ask(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return got, nil
}

// tokens are those of service accounts.
type tokens struct{ objects *objects.Objects }

// Token implements volume.Tokens.
func (t tokens) Token(ctx context.Context, pod *corev1.Pod, audience string, seconds int64, _ string) (string, time.Time, error) {
	account := objects.Account{Pod: pod, Seconds: seconds}
	if audience != "" {
		account.Audiences = []string{audience}
	}
	got, again, err := t.objects.Token(ctx, account)
	if err != nil {
		return "", time.Time{}, err
	}
	return got.Token, again, nil
}

// accounts are service accounts, as credential provider plugins need them.
type accounts struct{ objects *objects.Objects }

// ServiceAccount implements provider.Accounts.
func (a accounts) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return a.objects.ServiceAccount(ctx, namespace, name)
}

// Token implements provider.Accounts.
func (a accounts) Token(ctx context.Context, pod *corev1.Pod, audience string) (string, error) {
	got, _, err := a.objects.Token(ctx, objects.Account{Pod: pod, Audiences: []string{audience}})
	if err != nil {
		return "", err
	}
	return got.Token, nil
}

// reviews ask the API server who somebody is, and what they may do.
type reviews struct{ client *cluster.Client }

func (r reviews) ReviewToken(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	out := &authenticationv1.TokenReview{}
	err := r.client.REST(authenticationv1.SchemeGroupVersion).Post().Resource("tokenreviews").Body(review).Do(ctx).Into(out)
	return out, err
}

func (r reviews) ReviewAccess(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	out := &authorizationv1.SubjectAccessReview{}
	err := r.client.REST(authorizationv1.SchemeGroupVersion).Post().Resource("subjectaccessreviews").Body(review).Do(ctx).Into(out)
	return out, err
}

// reasonClaims is why a pod is refused that has resource claims.
const reasonClaims = "UnsupportedResourceClaims"

// resourceClaims are the pod's resource claims: by their names in its spec, and that which the
// scheduler has made for extended resources (KEP-5004).
func resourceClaims(pod *corev1.Pod) []string {
	var out []string
	for _, c := range pod.Spec.ResourceClaims {
		out = append(out, c.Name)
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		out = append(out, s.ResourceClaimName)
	}
	return out
}

// place finds the handler of a pod by its class. The API server has admitted the pod
// by then. A class that is gone is a refusal. For a handler that is not here the pod
// waits, as upstream's specs want it: the next one may be installed at any time.
func (n *Node) place(ctx context.Context, pod *corev1.Pod) (agent.Placement, error) {
	p := agent.Placement{Overhead: pod.Spec.Overhead}
	if err := n.cfg.Sysctls.Check(pod); err != nil {
		return p, &agent.Refusal{Reason: sysctl.Forbidden, Message: err.Error()}
	}
	if err := unsupported.Pod(pod); err != nil {
		return p, &agent.Refusal{Reason: unsupported.Reason, Message: err.Error()}
	}
	if names := resourceClaims(pod); len(names) > 0 {
		return p, &agent.Refusal{Reason: reasonClaims, Message: fmt.Sprintf("the pod has resource claims (%s), and this node has no dynamic resource allocation: "+
			"its containers would run without what they claim; ask for a resource of a device plugin, or have the pod scheduled to a node with a kubelet", strings.Join(names, ", "))}
	}
	if name := pod.Spec.RuntimeClassName; name != nil && *name != "" {
		class, err := n.cluster.Objects().Class(ctx, *name)
		switch {
		case apierrors.IsNotFound(err) && !priority.Static(pod): // which nobody can create anew
			return p, &agent.Refusal{Reason: "RuntimeClassNotFound", Message: fmt.Sprintf("the RuntimeClass %q of the pod does not exist; create it, and the pod anew", *name)}
		case err != nil:
			return p, fmt.Errorf("find RuntimeClass %s: %w", *name, err)
		}
		p.Class, p.Handler = class.Name, class.Handler
	}
	set, err := handlers.List(ctx, n.cfg.Endpoint.Runtime, p.Handler)
	if err != nil {
		return p, fmt.Errorf("ask the runtime for its handlers: %w", err)
	}
	if reason, err := set.CheckSecurity(pod); err != nil {
		return p, &agent.Refusal{Reason: reason, Message: err.Error()}
	}
	if why := set.Check(p.Handler); why != nil {
		return p, fmt.Errorf("RuntimeClass %q asks for the runtime handler %q, %w", p.Class, p.Handler, why)
	}
	p.Features = set.Features(p.Handler)
	return p, n.admitDevices(ctx, pod)
}
