package runtimeclass_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/pkg/runtimeclass"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return out
}

func plain(name string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name}
}

// cluster is an Admission with the classes gvisor (full), native and empty.
func cluster() runtimeclass.Admission {
	empty := plain("empty")
	empty.Overhead, empty.Scheduling = &nodev1.Overhead{}, &nodev1.Scheduling{}
	return runtimeclass.Admission{Classes: runtimeclass.NewMap(full(), plain("native"), empty)}
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	for _, c := range change {
		c(p)
	}
	return p
}

func onClass(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.RuntimeClassName = &name }
}

func withOverhead(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Overhead = list(pairs...) }
}

func withSelector(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{}
		for _, s := range pairs {
			key, value, _ := strings.Cut(s, "=")
			p.Spec.NodeSelector[key] = value
		}
	}
}

func withTolerations(t ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = t }
}

func noted(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

func TestCreateInjects(t *testing.T) {
	d, err := cluster().Create(pod(onClass("gvisor"), withSelector("zone=a"), withTolerations(corev1.Toleration{Key: "own"})))
	if err != nil {
		t.Fatal(err)
	}
	want := pod(onClass("gvisor"), withOverhead("memory=64Mi", "cpu=250m"), withSelector("zone=a", "runtime=gvisor"),
		withTolerations(append([]corev1.Toleration{{Key: "own"}}, full().Scheduling.Tolerations...)...),
		noted(runtimeclass.AnnotationInjected, `{"class":"gvisor","overhead":{"cpu":"250m","memory":"64Mi"},"nodeSelector":{"runtime":"gvisor"},`+
			`"tolerations":[{"key":"sandbox","operator":"Equal","value":"gvisor","effect":"NoSchedule"},{"key":"slow","operator":"Exists","effect":"NoExecute","tolerationSeconds":30}]}`))
	if text := diff(want.Spec, d.Pod.Spec) + diff(want.Annotations, d.Pod.Annotations); text != "" {
		t.Errorf("want and got:\n%s", text)
	}
	if d.Class == nil || d.Class.Handler != "runsc" || len(d.Warnings) > 0 {
		t.Errorf("class %v, warnings %q", d.Class, d.Warnings)
	}
	read, err := runtimeclass.InjectedOf(d.Pod)
	if err != nil || len(read.Tolerations) != 2 || read.NodeSelector["runtime"] != "gvisor" {
		t.Errorf("read back %+v, %v", read, err)
	}
}

func TestCreateListsOnlyWhatThePodLacked(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string // the annotation
	}{
		"all was there": {pod(onClass("gvisor"), withOverhead("memory=65536Ki", "cpu=0.25"), withSelector("runtime=gvisor"), withTolerations(full().Scheduling.Tolerations...)), ""},
		"half of it": {
			pod(onClass("gvisor"), withOverhead("memory=64Mi", "cpu=250m"), withTolerations(corev1.Toleration{Operator: corev1.TolerationOpExists})),
			`{"class":"gvisor","nodeSelector":{"runtime":"gvisor"}}`,
		},
		"a class that demands nothing":       {pod(onClass("native"), withSelector("a=b")), ""},
		"a class with empty parts":           {pod(onClass("empty")), ""},
		"no class":                           {pod(), ""},
		"a claim without a class":            {pod(noted(runtimeclass.AnnotationInjected, `{"class":"gvisor"}`)), ""},
		"a claim of what is not the class's": {pod(onClass("native"), noted(runtimeclass.AnnotationInjected, `{"class":"native","nodeSelector":{"a":"b"}}`)), ""},
		"a claim of more than the class's": {
			pod(onClass("gvisor"), withOverhead("memory=64Mi", "cpu=250m"), withSelector("runtime=gvisor", "a=b"), withTolerations(full().Scheduling.Tolerations...),
				noted(runtimeclass.AnnotationInjected, `{"class":"gvisor","chosenBy":"me","overhead":{"cpu":"1"},"nodeSelector":{"a":"b","runtime":"runc"},"tolerations":[{"operator":"Exists"}]}`)), "",
		},
		"a claim of another class": {pod(onClass("native"), noted(runtimeclass.AnnotationInjected, `{"class":"gvisor","chosenBy":"me"}`)), ""},
		"a claim that would take minutes": {
			pod(onClass("gvisor"), withOverhead("memory=64Mi", "cpu=250m"), withSelector("runtime=gvisor"), withTolerations(full().Scheduling.Tolerations...),
				noted(runtimeclass.AnnotationInjected, `{"class":"gvisor","overhead":{"cpu":"1e1000000000","memory":"1e-1000000000"}}`)), "",
		},
		"a claim that is no JSON": {pod(onClass("native"), noted(runtimeclass.AnnotationInjected, `{`)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := cluster().Create(tt.pod)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Pod.Annotations[runtimeclass.AnnotationInjected]; got != tt.want {
				t.Errorf("annotation is %s, want %s", got, tt.want)
			}
		})
	}
}

func TestNoClassIsTheDefault(t *testing.T) {
	for name, p := range map[string]*corev1.Pod{"nil": pod(), "empty": pod(onClass(""))} {
		d, err := cluster().Create(p)
		if err != nil || d.Class != nil || d.Pod.Spec.RuntimeClassName != nil {
			t.Errorf("%s: class %v, name %v, error %v", name, d.Class, d.Pod, err)
		}
		if err := cluster().Validate(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := cluster().Update(pod(onClass("")), pod()); err != nil {
		t.Errorf("from nil to empty: %v", err)
	}
}

// An API server rounds what was put into a pod, before it asks again.
func TestOverheadIsRounded(t *testing.T) {
	tiny := plain("tiny")
	tiny.Overhead = &nodev1.Overhead{PodFixed: list("cpu=1u", "memory=64Mi")}
	a := runtimeclass.Admission{Classes: runtimeclass.NewMap(tiny)}
	for _, cpu := range []string{"cpu=1u", "cpu=1m"} {
		p := pod(onClass("tiny"), withOverhead(cpu, "memory=64Mi"))
		if _, err := a.Create(p); err != nil {
			t.Errorf("created with %s: %v", cpu, err)
		}
		if err := a.Validate(p); err != nil {
			t.Errorf("validated with %s: %v", cpu, err)
		}
	}
	for _, cpu := range []string{"cpu=2m", "cpu=2u", "cpu=0"} {
		if err := a.Validate(pod(onClass("tiny"), withOverhead(cpu, "memory=64Mi"))); err == nil {
			t.Errorf("validated with %s", cpu)
		}
	}
	if got := tiny.Overhead.PodFixed.Cpu().String(); got != "1u" {
		t.Errorf("the class's own is %s now", got)
	}
}

func TestRejections(t *testing.T) {
	many := make([]corev1.Toleration, 1000)
	for i := range many {
		many[i].Key = fmt.Sprint("k", i)
	}
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		reason runtimeclass.Reason
		want   string
	}{
		"missing":                       {pod(onClass("gvisr")), runtimeclass.ReasonMissing, `spec.runtimeClassName: there is no RuntimeClass "gvisr"; there are empty, gvisor, native; did you mean gvisor?`},
		"missing, nothing like it":      {pod(onClass("wasm")), runtimeclass.ReasonMissing, `there is no RuntimeClass "wasm"; there are empty, gvisor, native`},
		"overhead of its own":           {pod(onClass("gvisor"), withOverhead("memory=65Mi", "cpu=250m")), runtimeclass.ReasonOverhead, "spec.overhead: is cpu 250m, memory 65Mi, and that of RuntimeClass gvisor is cpu 250m, memory 64Mi"},
		"overhead with less":            {pod(onClass("gvisor"), withOverhead("memory=64Mi")), runtimeclass.ReasonOverhead, "spec.overhead: is memory 64Mi"},
		"overhead with more":            {pod(onClass("gvisor"), withOverhead("memory=64Mi", "cpu=250m", "ephemeral-storage=0")), runtimeclass.ReasonOverhead, "spec.overhead"},
		"overhead, class without":       {pod(onClass("native"), withOverhead("memory=64Mi")), runtimeclass.ReasonOverhead, "RuntimeClass native has no overhead; leave it out"},
		"overhead, class with an empty": {pod(onClass("empty"), withOverhead("memory=64Mi")), runtimeclass.ReasonOverhead, "that of RuntimeClass empty is nothing"},
		"overhead without a class":      {pod(withOverhead("memory=64Mi")), runtimeclass.ReasonOverhead, "spec.overhead: only a RuntimeClass gives a pod overhead"},
		"selector": {
			pod(onClass("gvisor"), withSelector("runtime=runc")), runtimeclass.ReasonSelector,
			`spec.nodeSelector[runtime]: the pod wants "runc", and RuntimeClass gvisor wants "gvisor", so no node fits both`,
		},
		"more tolerations than are merged": {pod(onClass("gvisor"), withTolerations(many...)), runtimeclass.ReasonTolerations, "spec.tolerations: there are 1000, and with those of RuntimeClass gvisor at most 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cluster().Create(tt.pod)
			var r *runtimeclass.Rejection
			if !errors.As(err, &r) || r.Reason != tt.reason || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %s with %q", err, tt.reason, tt.want)
			}
			if r.Class != runtimeclass.NameOf(tt.pod) {
				t.Errorf("is told of class %q", r.Class)
			}
			var missing *runtimeclass.MissingError
			if errors.As(err, &missing) != (tt.reason == runtimeclass.ReasonMissing) {
				t.Errorf("MissingError: %v", missing)
			}
		})
	}
}

func TestMissingAmongManyOrNone(t *testing.T) {
	m := runtimeclass.Map{}
	for i := range 5000 {
		name := fmt.Sprintf("class-%04d", i)
		m[name] = plain(name)
	}
	_, err := runtimeclass.Find(m, "clas-4711")
	if err == nil || !strings.HasSuffix(err.Error(), "class-0018, class-0019 and 4980 more; did you mean class-4711?") {
		t.Errorf("of many: %v", err)
	}
	for name, none := range map[string]runtimeclass.Classes{"nil": nil, "empty": runtimeclass.Map{}} {
		if _, err := runtimeclass.Find(none, "a"); err == nil || !strings.Contains(err.Error(), `there is no RuntimeClass "a", nor any other; create it`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Webhooks are called again when another has changed the pod after them.
func TestCreateAgainChangesNothing(t *testing.T) {
	a := cluster()
	a.Legacy.ContainerdUntrusted = "gvisor"
	for name, p := range map[string]*corev1.Pod{
		"plain":      pod(onClass("gvisor")),
		"with parts": pod(onClass("gvisor"), withSelector("zone=a"), withTolerations(corev1.Toleration{Key: "own"}, corev1.Toleration{Key: "slow", Operator: corev1.TolerationOpExists})),
		"legacy":     pod(noted(runtimeclass.AnnotationContainerdUntrusted, "true")),
		"no class":   pod(),
	} {
		first, err := a.Create(p)
		if err != nil {
			t.Fatal(name, err)
		}
		again, err := a.Create(first.Pod)
		if err != nil {
			t.Fatal(name, err)
		}
		if text := diff(first.Pod, again.Pod) + diff(first.Injected, again.Injected) + diff(first.Warnings, again.Warnings); text != "" {
			t.Errorf("%s: first and again:\n%s", name, text)
		}
		if err := a.Validate(again.Pod); err != nil {
			t.Errorf("%s: what was admitted is not valid: %v", name, err)
		}
	}
}

// What a second pass injects is added to what the first one did.
func TestCreateAgainAfterALoss(t *testing.T) {
	first, err := cluster().Create(pod(onClass("gvisor")))
	if err != nil {
		t.Fatal(err)
	}
	lost := first.Pod.DeepCopy()
	delete(lost.Spec.NodeSelector, "runtime")
	lost.Spec.Tolerations = lost.Spec.Tolerations[1:]
	lost.Spec.Overhead = nil
	again, err := cluster().Create(lost)
	if err != nil {
		t.Fatal(err)
	}
	if text := diff(first.Injected, again.Injected); text != "" {
		t.Errorf("first and again:\n%s", text)
	}
}

func TestValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"overhead as the class's":   {pod(onClass("gvisor"), withOverhead("memory=64Mi", "cpu=250m")), ""},
		"class without overhead":    {pod(onClass("native")), ""},
		"class with empty overhead": {pod(onClass("empty")), ""},
		"overhead taken away":       {pod(onClass("gvisor")), "spec.overhead: is missing; RuntimeClass gvisor has cpu 250m, memory 64Mi"},
		"overhead changed":          {pod(onClass("gvisor"), withOverhead("memory=1Mi")), "spec.overhead: is memory 1Mi"},
		"overhead without a class":  {pod(withOverhead("memory=1Mi")), "spec.overhead: only a RuntimeClass"},
		"class that is gone":        {pod(onClass("kata")), `there is no RuntimeClass "kata"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := cluster().Validate(tt.pod)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		from, to *corev1.Pod
		want     string
	}{
		"the same":           {pod(onClass("gvisor")), pod(onClass("gvisor"), noted("a", "b")), ""},
		"a class that left":  {pod(onClass("gone")), pod(onClass("gone")), ""},
		"overhead rewritten": {pod(withOverhead("memory=1Gi")), pod(withOverhead("memory=1024Mi")), ""},
		"another class":      {pod(onClass("gvisor")), pod(onClass("native")), "spec.runtimeClassName: the class of a pod cannot change, from gvisor to native; make a new pod"},
		"a class at last":    {pod(), pod(onClass("native")), "from none to native"},
		"no class any more":  {pod(onClass("native")), pod(), "from native to none"},
		"another overhead":   {pod(withOverhead("memory=1Gi")), pod(withOverhead("memory=2Gi")), "spec.overhead: the overhead of a pod cannot change, from memory 1Gi to memory 2Gi"},
		"no overhead":        {pod(withOverhead("memory=1Gi")), pod(), "from memory 1Gi to nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			err := cluster().Update(tt.to, tt.from)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			var r *runtimeclass.Rejection
			if err != nil && (!errors.As(err, &r) || r.Reason != runtimeclass.ReasonImmutable) {
				t.Errorf("the reason is %v", r)
			}
		})
	}
}

func TestTolerationsAreMerged(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	var (
		all       = corev1.Toleration{Operator: "Exists"}
		allRun    = corev1.Toleration{Operator: "Exists", Effect: "NoExecute"}
		key       = corev1.Toleration{Key: "a", Operator: "Exists"}
		keyNo     = corev1.Toleration{Key: "a", Operator: "Exists", Effect: "NoSchedule"}
		value     = corev1.Toleration{Key: "a", Operator: "Equal", Value: "b"}
		other     = corev1.Toleration{Key: "a", Operator: "Equal", Value: "c"}
		unsaid    = corev1.Toleration{Key: "a", Value: "b"}
		minute    = corev1.Toleration{Key: "a", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds(60)}
		hour      = corev1.Toleration{Key: "a", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds(3600)}
		evermore  = corev1.Toleration{Key: "a", Operator: "Exists", Effect: "NoExecute"}
		below     = corev1.Toleration{Key: "a", Operator: "Lt", Value: "5"}
		different = corev1.Toleration{Key: "z", Operator: "Exists"}
	)
	type set = []corev1.Toleration
	for name, tt := range map[string]struct{ pod, class, want set }{
		"nothing":                                {nil, nil, nil},
		"only the pod's":                         {set{key}, nil, set{key}},
		"only the class's":                       {nil, set{key}, set{key}},
		"the pod's first":                        {set{different}, set{key}, set{different, key}},
		"the same":                               {set{key}, set{key}, set{key}},
		"the pod's own repetition":               {set{value, value}, nil, set{value}},
		"the class's is within the pod's":        {set{all}, set{value, keyNo, minute}, set{all}},
		"the pod's is within the class's":        {set{value, different}, set{key}, set{different, key}},
		"all of one effect":                      {set{allRun}, set{evermore, keyNo}, set{allRun, keyNo}},
		"two values":                             {set{value}, set{other}, set{value, other}},
		"a value in any effect":                  {set{value}, set{keyNo}, set{value, keyNo}},
		"the longer time":                        {set{minute}, set{hour}, set{hour}},
		"the longer time, the other way round":   {set{hour}, set{minute}, set{hour}},
		"for ever":                               {set{hour, minute}, set{evermore}, set{evermore}},
		"time within all effects":                {set{key}, set{minute}, set{key}},
		"Equal that is not said":                 {set{unsaid}, set{value}, set{unsaid}},
		"Equal that is not said, after":          {set{value}, set{unsaid}, set{unsaid}},
		"Equal that is not said, twice":          {set{unsaid, unsaid}, nil, set{unsaid}},
		"comparisons":                            {set{below}, set{below}, set{below}},
		"comparison within Exists":               {set{below}, set{key}, set{key}},
		"Exists of a key is not in a comparison": {set{key}, set{below}, set{key}},
	} {
		t.Run(name, func(t *testing.T) {
			class := plain("c")
			class.Scheduling = &nodev1.Scheduling{Tolerations: tt.class}
			a := runtimeclass.Admission{Classes: runtimeclass.NewMap(class)}
			d, err := a.Create(pod(onClass("c"), withTolerations(tt.pod...)))
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Pod.Spec.Tolerations)+len(tt.want) > 0 && diff(tt.want, d.Pod.Spec.Tolerations) != "" {
				t.Errorf("want and got:\n%s", diff(tt.want, d.Pod.Spec.Tolerations))
			}
			for _, i := range d.Injected.Tolerations {
				if !slices.ContainsFunc(tt.class, func(c corev1.Toleration) bool { return diff(c, i) == "" }) {
					t.Errorf("injected %v, which is not the class's", i)
				}
			}
		})
	}
}

func BenchmarkCreate(b *testing.B) {
	m := runtimeclass.Map{"gvisor": full()}
	for i := range 5000 {
		name := fmt.Sprintf("class-%04d", i)
		m[name] = plain(name)
	}
	a := runtimeclass.Admission{Classes: m}
	for name, p := range map[string]*corev1.Pod{"admitted": pod(onClass("gvisor")), "missing": pod(onClass("clas-4711"))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = a.Create(p)
			}
		})
	}
}
