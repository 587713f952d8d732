// Package policy holds what Kubernetes' RuntimeClass leaves to others: which
// class a pod gets that names none, which it may have, and whether its handler
// can do what the pod asks for.
//
//   - Policies: Compile makes a RuntimeClassPolicy ready, Set holds those of a
//     cluster, and Set.For is those of a namespace.
//   - Abilities: a Fleet knows from the nodes, and Supports with what the class
//     says of itself, what a class's handler can do.
//   - Fitting: a pod with AnnotationRequires gets the class that satisfies it.
//   - Admission: Create chooses a class and injects it, Check holds a pod against
//     policies and abilities, Update against what it was.
//   - Classes: ValidateClass reads the labels and annotations that all this
//     goes by, and DefaultOf finds the cluster's default.
//
// Like package runtimeclass it is pure: no I/O, no clock, and nothing that is
// handed in is changed. Only a Fleet remembers what it worked out.
package policy
