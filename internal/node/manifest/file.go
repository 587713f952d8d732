package manifest

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"fairlead.run/internal/node/manifest/template"
	"fairlead.run/internal/node/priority"
)

// File is what one source holds, without a look at others.
type File struct {
	Name    string
	objects *Objects
}

// Notes are things in it that are right but may surprise.
func (f *File) Notes() []string { return f.objects.Notes }

// Problem is something that is wrong with one source and leaves the others as they
// are.
type Problem struct {
	Origin string // the file, address or stream
	Err    error  // what, where in it, and what to do
	Reason string // of the event that tells of it; empty for InvalidManifest
}

// Event is the reason of the event that tells of it.
func (p Problem) Event() string { return cmp.Or(p.Reason, "InvalidManifest") }

// DecodeFile reads the objects of one source. The error joins the faults found, one
// to a line, each starting with where it is.
func DecodeFile(s Source) (*File, error) {
	d := decoder{objects: newObjects(), defined: definitions(s)}
	return d.file(s)
}

// DecodeFiles is as DecodeFile for several sources, of which one may define kinds of the
// objects of others. The error is about the first source that is wrong.
func DecodeFiles(sources []Source) ([]*File, error) {
	defined := definitions(sources...)
	var out []*File
	for _, s := range sources {
		d := decoder{objects: newObjects(), defined: defined}
		f, err := d.file(s)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// DecodeStatic is as DecodeFile for static pods of a node of a cluster: a Pod may have
// all fields that Kubernetes has, as those that an API server binds to the node. Which of
// them the node cannot do is for the node to say.
func DecodeStatic(s Source) (*File, error) {
	d := decoder{objects: newObjects(), static: true, defined: definitions(s)}
	d.objects.static = true
	return d.file(s)
}

func (d *decoder) file(s Source) (*File, error) {
	d.source(s)
	if err := d.err(); err != nil {
		return nil, err
	}
	return &File{Name: s.Name, objects: d.objects}, nil
}

// Decode reads the objects of all sources, for a run in the foreground: what holds
// for one of them holds for all. The error is as that of DecodeFile.
func Decode(sources []Source) (*Objects, error) {
	all, defined := decoder{}, definitions(sources...)
	var files []*File
	for _, s := range sources {
		one := decoder{objects: newObjects(), faults: all.faults, defined: defined}
		one.source(s)
		all.faults = one.faults
		files = append(files, &File{Name: s.Name, objects: one.objects})
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	objects, problems := Merge(files)
	for _, p := range problems {
		all.faults = append(all.faults, p.Err)
	}
	all.faults = append(all.faults, objects.foreground()...)
	if len(all.faults) == 0 {
		for _, p := range objects.References() {
			all.faults = append(all.faults, p.Err)
		}
	}
	for _, p := range objects.Pods {
		_ = priority.Resolve(&p.Spec, objects.Priorities) // what is wrong with it is among the faults
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	return objects, nil
}

// source reads one source, unless there are faults enough.
func (d *decoder) source(s Source) {
	docs, err := split(s)
	if err != nil {
		d.faults = append(d.faults, err)
		return
	}
	if len(docs) == 0 {
		d.faults = append(d.faults, invalid("%s: holds no document", s.Name))
	}
	for _, doc := range docs {
		if len(d.faults) >= maxFaults {
			return
		}
		d.document(doc)
	}
}

func (d *decoder) err() error {
	if len(d.faults) > maxFaults {
		d.faults = append(d.faults[:maxFaults:maxFaults], errTooMany)
	}
	return errors.Join(d.faults...)
}

// Merge puts the objects of files together. Of two that define the same object the
// first one keeps it. The objects are those of the files, and not copies.
func Merge(files []*File) (*Objects, []Problem) {
	m := merger{objects: newObjects()}
	for _, f := range files {
		m.add(f.Name, f.objects)
	}
	return m.done()
}

// MergeAll is as Merge, for what was merged before. A duplicate is a problem of
// the source that the name beside the objects is of.
func MergeAll(names []string, all []*Objects) (*Objects, []Problem) {
	m := merger{objects: newObjects()}
	for i, o := range all {
		m.add(names[i], o)
	}
	return m.done()
}

func (m *merger) done() (*Objects, []Problem) {
	o := m.objects
	for _, w := range o.Workloads {
		if w.StatefulSet == nil {
			continue
		}
		for _, c := range template.Claims(w.StatefulSet) {
			if k := (Key{c.Namespace, c.Name}); o.Claims[k] == nil { // else somebody has written it
				o.Claims[k] = c
			}
		}
	}
	m.defaults()
	if len(o.Pods) > MaxPods {
		m.problem(o.Pods[MaxPods].Source, invalid("the manifests ask for %d pods; the most is %d", len(o.Pods), MaxPods))
		o.Pods = o.Pods[:MaxPods]
	}
	return o, m.problems
}

// References finds the pods that refer to what is not among the objects. Such a pod
// stays: what it lacks may be there soon, and if it runs, it goes on without it.
func (o *Objects) References() []Problem {
	var out []Problem
	for _, p := range o.Pods {
		for _, why := range o.references(p.Pod) {
			out = append(out, Problem{Origin: p.Source, Err: invalid("%s: %s", p.Origin, why)})
		}
	}
	for _, w := range o.Workloads {
		for _, why := range o.references(w.template()) {
			out = append(out, Problem{Origin: w.Source, Err: invalid("%s: template: %s", w.Origin, why)})
		}
	}
	return out
}

type merger struct {
	objects  *Objects
	problems []Problem
}

func (m *merger) problem(origin string, err error) {
	m.problems = append(m.problems, Problem{Origin: origin, Err: err})
}

// add adds what no earlier file has.
func (m *merger) add(name string, o *Objects) {
	lost := map[string]bool{}
	m.objects.static = m.objects.static || o.static
	for _, id := range slices.Sorted(maps.Keys(o.claims)) {
		if err := m.objects.claim(id, o.claims[id]); err != nil {
			lost[id] = true
			m.problem(name, err)
		}
	}
	for _, p := range o.Pods {
		if !lost[id("Pod", p.Key())] && !lost[id(p.OwnerKind, Key{p.Namespace, p.Owner})] {
			m.objects.Pods = append(m.objects.Pods, p)
		}
	}
	for _, w := range o.Workloads {
		if !lost[id(w.Kind, w.Key())] {
			m.objects.Workloads = append(m.objects.Workloads, w.without(lost))
		}
	}
	for _, s := range o.Shown {
		if !lost[id(s.Kind, s.key())] {
			m.objects.Shown = append(m.objects.Shown, s)
		}
	}
	keep(m.objects.Claims, o.Claims, func(k Key) bool { return lost[id("PersistentVolumeClaim", k)] })
	keep(m.objects.ConfigMaps, o.ConfigMaps, func(k Key) bool { return lost[id("ConfigMap", k)] })
	keep(m.objects.Secrets, o.Secrets, func(k Key) bool { return lost[id("Secret", k)] })
	keep(m.objects.Classes, o.Classes, func(name string) bool { return lost[id("RuntimeClass", Key{Name: name})] })
	keep(m.objects.Priorities, o.Priorities, func(name string) bool { return lost[id("PriorityClass", Key{Name: name})] })
	m.objects.Notes = append(m.objects.Notes, o.Notes...)
}

// keep adds what is not lost.
func keep[K comparable, V any](to, from map[K]V, lost func(K) bool) {
	for k, v := range from {
		if !lost(k) {
			to[k] = v
		}
	}
}
