package v1alpha1

// What Gardener and its extensions say to each other by names.
const (
	// Finalizer keeps a ContainerRuntime until its runtime is off the nodes.
	Finalizer = "extensions.gardener.cloud/containerruntime"
	// AnnotationOperation is the order that an object waits for.
	AnnotationOperation = "gardener.cloud/operation"
	// AnnotationTimestamp is when the last order was given, in RFC 3339. What an
	// operation said before that is about another order.
	AnnotationTimestamp = "gardener.cloud/timestamp"
	// AnnotationConfirm has to be "true" on what is deleted.
	AnnotationConfirm = "confirmation.gardener.cloud/deletion"
	// AnnotationForce is "true" on what is deleted without waiting for nodes.
	AnnotationForce = "confirmation.gardener.cloud/force-deletion"
	// LabelPool is the worker pool of a node.
	LabelPool = "worker.gardener.cloud/pool"
	// LabelCRI is the CRI runtime of a node, by name.
	LabelCRI = "worker.gardener.cloud/cri-name"
	// LabelRuntimePrefix and a type are the label of nodes that are to have it.
	LabelRuntimePrefix = "containerruntime.worker.gardener.cloud/"
)

// The orders.
const (
	OrderReconcile    = "reconcile"
	OrderMigrate      = "migrate"
	OrderRestore      = "restore"
	OrderWaitForState = "wait-for-state" // to do nothing, until the state is there to restore
)

// OperationType is what an operation is about.
type OperationType string

// The types of operations.
const (
	OperationCreate    OperationType = "Create"
	OperationReconcile OperationType = "Reconcile"
	OperationDelete    OperationType = "Delete"
	OperationMigrate   OperationType = "Migrate"
	OperationRestore   OperationType = "Restore"
)

// OperationState is how far an operation is.
type OperationState string

// The states of operations.
const (
	StateProcessing OperationState = "Processing"
	StateSucceeded  OperationState = "Succeeded"
	StateError      OperationState = "Error"  // it is tried again
	StateFailed     OperationState = "Failed" // it is not
	StatePending    OperationState = "Pending"
	StateAborted    OperationState = "Aborted"
)

// ErrorCode is a cause that programs know.
type ErrorCode string

// The codes that are used here.
const (
	// CodeConfiguration says that a user has to change something first.
	CodeConfiguration ErrorCode = "ERR_CONFIGURATION_PROBLEM"
	// CodeCleanup says that something of the user's holds a deletion up.
	CodeCleanup ErrorCode = "ERR_CLEANUP_CLUSTER_RESOURCES"
	// CodeRetryable says that a wrong configuration may mend itself.
	CodeRetryable ErrorCode = "ERR_RETRYABLE_CONFIGURATION_PROBLEM"
)
