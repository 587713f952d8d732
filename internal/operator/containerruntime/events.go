package containerruntime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// tell has an event for each node that is not for a runtime, of the ContainerRuntime:
// those of nodes are in a namespace where the operator has no rights. Each is made once;
// its name has what it says, so that an operator which begins anew does not repeat it.
func (e *onNodes) tell(ctx context.Context, c *gardener.ContainerRuntime, all []failure) error {
	for _, one := range all {
		sum := sha256.Sum256([]byte(string(c.UID) + " " + one.says))
		name := names.Object(c.Name, "misfit") + "." + hex.EncodeToString(sum[:])[:16]
		if e.told[name] {
			continue
		}
		now := metav1.NewTime(e.now())
		err := e.client.Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: gardener.SchemeGroupVersion.String(), Kind: "ContainerRuntime", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
			},
			Type: corev1.EventTypeWarning, Reason: "NodeMisfit", Message: one.says,
			Source: corev1.EventSource{Component: names.Manager}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make an event of node %s: %w", one.node, err)
		}
		e.told[name] = true
	}
	return nil
}
