package cluster

import (
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

// kinds are the types that Fairlead reads or writes in a cluster. It is made when
// it is first asked for: the node's daemon never does.
var kinds = sync.OnceValues(func() (*runtime.Scheme, serializer.CodecFactory) {
	s := runtime.NewScheme()
	groups := runtime.NewSchemeBuilder(corev1.AddToScheme, nodev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme,
		admissionregistrationv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, storagev1.AddToScheme,
		v1alpha1.AddToScheme, gardener.AddToScheme)
	if err := groups.AddToScheme(s); err != nil { // the same types are always the same
		panic("cluster: make a scheme: " + err.Error())
	}
	// Without it, the options of requests have no versioned form.
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, serializer.NewCodecFactory(s)
})

// Scheme knows the types that Fairlead reads or writes in a cluster, and no more.
func Scheme() *runtime.Scheme {
	s, _ := kinds()
	return s
}
