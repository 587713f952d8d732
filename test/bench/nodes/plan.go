package main

import (
	"time"

	"fairlead.run/test/bench/report"
)

// parts are what -only may name.
var parts = []string{"one", "hung", "many", "rest"}

// plan says how much of each is done.
type plan struct {
	warm          int // pods of each node that are not measured
	rounds, pods  int // that come one after the other
	hung          int // pods beside which others come one after the other, in as many rounds
	bursts, burst int // rounds, and pods of each
	idle          []int
	settle, watch time.Duration
	pause         time.Duration // after each pod, in which what it leaves behind may go
	leftovers     time.Duration // how long to wait for what earlier pods have left
	patience      time.Duration // it decides nothing but when to give up
}

// fullPlan is what docs/node-performance.md is written from.
func fullPlan() plan {
	return plan{
		warm: 3, rounds: 5, pods: 7, hung: report.NodeHungPods, bursts: 2, burst: report.NodeBurstPods, idle: []int{0, report.NodeMemoryPods, report.NodeIdlePods},
		settle: 5 * time.Second, watch: 40 * time.Second, leftovers: 100 * time.Second, pause: 300 * time.Millisecond, patience: 3 * time.Minute,
	}
}

// shortPlan only shows that everything works: its numbers mean little.
func shortPlan() plan {
	return plan{
		warm: 1, rounds: 1, pods: 3, hung: 2, bursts: 1, burst: 8, idle: []int{0, 5}, settle: time.Second, watch: 2 * time.Second, leftovers: 100 * time.Millisecond, patience: 3 * time.Minute,
	}
}
