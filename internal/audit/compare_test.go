package audit

import (
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/pod"
)

func record(id string, s pod.State, containers ...*pod.Container) *pod.Record {
	return &pod.Record{Version: pod.RecordVersion, ID: pod.ID(id), State: s, Containers: containers}
}

func held(k pod.Kind, name, owner string) pod.Held {
	return pod.Held{Kind: k, Name: name, Owner: owner}
}

// TestCompare tells leftovers and losses from what an operation has in its
// hands: what counts is what was there, and on record, at which moments.
func TestCompare(t *testing.T) {
	running, stopped := record("p", pod.Running), record("p", pod.Exited)
	none := []*pod.Record{}
	is := func(list ...*pod.Record) []*pod.Record { return list }
	mount := held(pod.KindMount, "/m", "p")
	foreign := held(pod.KindMount, "/x", "q")
	wantsMount := func(r *pod.Record) []pod.Held {
		if r.State != pod.Running {
			return nil
		}
		return []pod.Held{mount}
	}
	faulty := held(pod.KindLink, "l", "p")
	faulty.Fault = "it is red"
	for _, tt := range []struct {
		name    string
		records [3][]*pod.Record
		held    [2][]pod.Held
		want    []string
	}{
		{"all in order", [3][]*pod.Record{is(running), is(running), is(running)}, [2][]pod.Held{{mount}, {mount}}, nil},
		{"nobody's", [3][]*pod.Record{none, none, none}, [2][]pod.Held{{foreign}, {foreign}}, []string{"mount-leftover /x"}},
		{"nobody's and gone again", [3][]*pod.Record{none, none, none}, [2][]pod.Held{{foreign}, {}}, nil},
		{"made after the first look", [3][]*pod.Record{none, none, none}, [2][]pod.Held{{}, {foreign}}, nil},
		{"on record just after", [3][]*pod.Record{none, is(running), is(running)}, [2][]pod.Held{{mount}, {mount}}, nil},
		{"on record at the end", [3][]*pod.Record{none, none, is(running)}, [2][]pod.Held{{mount}, {mount}}, nil},
		{"on record until just before", [3][]*pod.Record{is(running), none, none}, [2][]pod.Held{{mount}, {mount}}, nil},
		{"gone", [3][]*pod.Record{is(running), is(running), is(running)}, [2][]pod.Held{{}, {}}, []string{"mount-missing /m"}},
		{"seen once", [3][]*pod.Record{is(running), is(running), is(running)}, [2][]pod.Held{{mount}, {}}, nil},
		{"seen later", [3][]*pod.Record{is(running), is(running), is(running)}, [2][]pod.Held{{}, {mount}}, nil},
		{"stopped meanwhile", [3][]*pod.Record{is(running), is(running), is(stopped)}, [2][]pod.Held{{}, {}}, nil},
		{"started meanwhile", [3][]*pod.Record{is(record("p", pod.Creating)), is(running), is(running)}, [2][]pod.Held{{}, {}}, nil},
		{"of a stopped pod", [3][]*pod.Record{is(stopped), is(stopped), is(stopped)}, [2][]pod.Held{{mount}, {mount}}, []string{"mount-leftover /m"}},
		{"of a pod that stops", [3][]*pod.Record{is(running), is(stopped), is(stopped)}, [2][]pod.Held{{mount}, {mount}}, nil},
		{"folder of a stopped pod", [3][]*pod.Record{is(stopped), is(stopped), is(stopped)}, [2][]pod.Held{{held(pod.KindFolder, "/f", "p")}, {held(pod.KindFolder, "/f", "p")}}, nil},
		{"at fault", [3][]*pod.Record{is(running), is(running), is(running)}, [2][]pod.Held{{mount, faulty}, {mount, faulty}}, []string{"link-faulty l"}},
		{"mended meanwhile", [3][]*pod.Record{is(running), is(running), is(running)}, [2][]pod.Held{{mount, faulty}, {mount, held(pod.KindLink, "l", "p")}}, nil},
		{"of all pods", [3][]*pod.Record{none, none, none}, [2][]pod.Held{{held(pod.KindTable, "t", "")}, {held(pod.KindTable, "t", "")}}, nil},
	} {
		var got []string
		for _, f := range compare(views{records: tt.records, held: tt.held}, wantsMount) {
			got = append(got, string(f.Code())+" "+f.Thing.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestCompareWithUnreadableRecord keeps what may be of one of its containers.
func TestCompareWithUnreadableRecord(t *testing.T) {
	broken := &pod.Record{ID: "broken", State: pod.Unknown, Reason: "torn"}
	all := []*pod.Record{broken}
	things := []pod.Held{held(pod.KindWritable, "/w", "q"), held(pod.KindBlob, "b", ""), held(pod.KindNamespace, "/n", "broken")}
	found := compare(views{records: [3][]*pod.Record{all, all, all}, held: [2][]pod.Held{things, things}}, func(*pod.Record) []pod.Held { return nil })
	if len(found) != 2 {
		t.Fatalf("found %+v", found)
	}
	for _, f := range found {
		if f.Repair != (f.Thing.Name == "b") {
			t.Errorf("%s: repair %v, %s", f.Thing.Name, f.Repair, f.Action)
		}
	}
	if !strings.Contains(found[0].Action, "remove pod broken first") {
		t.Errorf("it says %q", found[0].Action)
	}
}

// TestRepairable tells which losses can be made good.
func TestRepairable(t *testing.T) {
	running := &pod.Container{ID: "c", State: pod.Running, Process: &pod.RunningProcess{PID: 1}}
	waits := &pod.Container{ID: "w", State: pod.Created}
	for _, tt := range []struct {
		name  string
		pod   *pod.Record
		thing pod.Held
		want  bool
	}{
		{"namespace of a pod with a process", record("p", pod.Running, running), held(pod.KindNamespace, "n", "p"), true},
		{"namespace of a pod without one", record("p", pod.Running, waits), held(pod.KindNamespace, "n", "p"), false},
		{"root of a container that runs", record("p", pod.Running, running), held(pod.KindMount, "m", "c"), false},
		{"root of a container that waits", record("p", pod.Running, waits), held(pod.KindMount, "m", "w"), true},
		{"shm", record("p", pod.Running), held(pod.KindMount, "m", "p"), true},
		{"cgroup of the pod", record("p", pod.Running), held(pod.KindCgroup, "g", "p"), true},
		{"cgroup of a container", record("p", pod.Running, running), held(pod.KindCgroup, "g", "c"), false},
		{"FIFO", record("p", pod.Running, running), held(pod.KindFIFO, "f", "c"), false},
	} {
		f := describe(tt.thing, Missing, tt.pod)[0]
		if f.Repair != tt.want || f.Action == "" {
			t.Errorf("%s: repair %v (%s), want %v", tt.name, f.Repair, f.Action, tt.want)
		}
	}
}

// TestRules wants words for each code, and each once.
func TestRules(t *testing.T) {
	seen := map[Code]bool{}
	for _, r := range Rules() {
		if seen[r.Code()] || r.Means == "" || r.Repair == "" && r.Advice == "" || r.can != nil && r.Advice == "" {
			t.Errorf("%s: twice, or without words", r.Code())
		}
		seen[r.Code()] = true
	}
	// What may run goes before what lies under it.
	order := []pod.Kind{pod.KindProcess, pod.KindState, pod.KindCgroup, pod.KindMount, pod.KindBundle, pod.KindWritable, pod.KindUse, pod.KindSnapshot}
	last := -1
	for _, k := range order {
		_, rank, ok := ruleOf(k, Leftover)
		if !ok || rank <= last {
			t.Errorf("%s is repaired too early", k)
		}
		last = rank
	}
}
