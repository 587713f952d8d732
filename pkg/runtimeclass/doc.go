// Package runtimeclass holds the rules of Kubernetes' RuntimeClass on the types
// of k8s.io/api, for webhooks, node agents, autoscalers, queues and linters that
// would otherwise write them again.
//
//   - Conversion: FromV1alpha1, FromV1beta1, and back by ToV1alpha1 and ToV1beta1.
//     Everything else works on v1.
//   - Validation: Validate and ValidateUpdate give an API server's answers, with
//     the path of each fault.
//   - Admission: Admission.Create puts a class's overhead, node selector and
//     tolerations into a pod, or says why the pod is rejected. What it put there
//     is listed in AnnotationInjected. Validate and Update check pods that exist.
//   - Old annotations: Legacy gives those from before RuntimeClass a class.
//   - Nodes: Match says which nodes can run a class or a pod, with every reason
//     against each other one, and Explain says it in one sentence.
//
// It is pure: no I/O, no clock, no logging, no state. What is handed in is never
// changed and never shared with a result, so an informer's objects can be given
// as they are, by many goroutines at once. Only Decision.Class and what Find
// returns are the very object that Classes has; read them only.
//
// It does not keep classes, watch nodes or talk to an API server, and it does
// not schedule: Match judges a node by what the node, the class and the pod say,
// and not by pod affinity, volumes, ports or preemption.
package runtimeclass
