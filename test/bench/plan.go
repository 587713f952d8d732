package main

import (
	"time"

	"fairlead.run/test/bench/report"
)

// plan says how much of each is done.
//
// Larger than other structs: it is a list of numbers, and each stands alone.
type plan struct {
	serialRounds, serialPods, execs int
	sandboxes                       int // pods in each of the serial rounds
	parallelRounds                  int
	parallel                        map[int]int   // clients to pods
	sustain                         time.Duration // of each round
	sustainRounds                   int
	pulls                           []pulled
	pullRounds                      int
	idle                            []int // pods
	crowd                           []int // containers in the most of these, one or two in each
	settle, watch                   time.Duration
	looks                           int
	traced, profiled                int
	restartPods, restarts           int
}

// fullPlan is what docs/performance.md is written from.
func fullPlan() plan {
	return plan{
		serialRounds: 6, serialPods: 10, execs: 3, sandboxes: 6,
		parallelRounds: 3, parallel: map[int]int{4: 24, 16: 32},
		sustain: 20 * time.Second, sustainRounds: 3,
		pulls: []pulled{{2, 1}, {45, 5}, {300, 6}}, pullRounds: 5,
		idle: []int{0, 20, 100, 300}, crowd: []int{300, 500}, settle: 8 * time.Second, watch: 12 * time.Second,
		looks: 50, traced: 20, profiled: 100, restartPods: report.RestartPods, restarts: 5,
	}
}

// shortPlan only shows that everything works: its numbers mean little.
func shortPlan() plan {
	return plan{
		serialRounds: 1, serialPods: 2, execs: 2, sandboxes: 1,
		parallelRounds: 1, parallel: map[int]int{4: 4, 16: 16},
		sustain: 2 * time.Second, sustainRounds: 1,
		pulls: []pulled{{2, 1}, {45, 5}}, pullRounds: 1,
		idle: []int{0, 5, 20}, crowd: []int{20, 30}, settle: time.Second, watch: 2 * time.Second,
		looks: 5, traced: 3, profiled: 5, restartPods: 8, restarts: 2,
	}
}
