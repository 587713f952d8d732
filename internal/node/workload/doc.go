// Package workload says which pods Jobs, CronJobs and StatefulSets are to have now.
//
// It is pure and level-triggered: from the object, what is known of its pods, a
// record of what has been, and the time, it makes the pods that are to be there, a
// new record, and the time to ask again if nothing happens before. Asked twice, it
// says the same. Pods that are not wanted any more are to be ended.
//
// The record is what must outlive the agent, and the pods: which pods of a Job have
// ended, and what a CronJob has started. Whoever asks stores it before acting on
// what is wanted. Names of pods follow from the object, so that nothing else is
// needed to know them again.
package workload
