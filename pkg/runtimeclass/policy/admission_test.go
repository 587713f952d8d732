package policy_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
	"fairlead.run/test/classtable"
)

func TestCreateChooses(t *testing.T) {
	byTeam := demand("team", v1alpha1.RuntimeClassPolicySpec{DefaultClass: "gvisor", NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "team"}}})
	later := demand("z-all", v1alpha1.RuntimeClassPolicySpec{DefaultClass: "kata"})
	for name, tt := range map[string]struct {
		pod       *corev1.Pod
		namespace string
		cluster   string // default
		class, by string
		refused   runtimeclass.Reason
		says      string
	}{
		"named":                       {pod: pod(of("runc")), namespace: "team", class: "runc"},
		"the first policy by name":    {pod: pod(), namespace: "team", class: "gvisor", by: "RuntimeClassPolicy team"},
		"a policy for all":            {pod: pod(), namespace: "other", class: "kata", by: "RuntimeClassPolicy z-all"},
		"a policy before the cluster": {pod: pod(), namespace: "other", cluster: "runc", class: "kata", by: "RuntimeClassPolicy z-all"},
		"empty is none":               {pod: pod(of("")), namespace: "team", class: "gvisor", by: "RuntimeClassPolicy team"},
		"Windows has no default":      {pod: pod(with(func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Windows} })), namespace: "team"},
		"the least isolation":         {pod: pod(requiring("isolation=sandbox")), namespace: "team", class: "gvisor", by: policy.AnnotationRequires, says: "gvisor has isolation=sandbox, as 2 others, and the least isolation, sandbox"},
		"the least overhead":          {pod: pod(requiring("isolation=vm")), namespace: "team", class: "fire", by: policy.AnnotationRequires, says: "fire has isolation=vm, as kata has, and the least overhead of memory"},
		"a feature":                   {pod: pod(requiring(" checkpoints ")), namespace: "team", class: "fire", by: policy.AnnotationRequires, says: "fire has checkpoints, and no other class has"},
		"what no class is known for": {
			pod: pod(requiring("isolation=vm,userNamespaces")), namespace: "team", refused: policy.ReasonNoFit,
			says: "no RuntimeClass has isolation=vm,userNamespaces: fire lacks userNamespaces (the user namespaces of the node end at a virtual machine); gvisor has isolation sandbox; kata lacks userNamespaces (the user namespaces of the node end at a virtual machine); runc has isolation none",
		},
		"what only some nodes have": {
			pod: pod(requiring("user-namespaces")), namespace: "team", refused: policy.ReasonNoFit,
			says: "runc lacks user-namespaces (1 of its 2 nodes have it, and node b does not say so)",
		},
		"what cannot be read":   {pod: pod(requiring("isolation=much")), namespace: "team", refused: policy.ReasonRequires, says: `"isolation=much" cannot be read`},
		"another value":         {pod: pod(requiring("userNamespaces=yes")), namespace: "team", refused: policy.ReasonRequires, says: "features without a value"},
		"two levels":            {pod: pod(requiring("isolation=vm,isolation=none")), namespace: "team", refused: policy.ReasonRequires, says: "once"},
		"an empty word":         {pod: pod(requiring("checkpoint,,")), namespace: "team", refused: policy.ReasonRequires, says: `"" is no feature`},
		"fitted to the pod":     {pod: pod(requiring("isolation=sandbox"), with(func(s *corev1.PodSpec) { s.HostPID = true })), namespace: "team", refused: policy.ReasonNoFit, says: "gvisor is refused: RuntimeClass gvisor has no hostPID"},
		"the requirement's own": {pod: pod(of("runc"), requiring("isolation=vm")), namespace: "team", class: "runc"}, // Check refuses it
	} {
		t.Run(name, func(t *testing.T) {
			a := cluster(t, later, byTeam)
			a.Default = tt.cluster
			d, err := a.Create(tt.pod, namespace(tt.namespace))
			if tt.refused != "" {
				refusedFor(t, err, tt.refused, tt.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := runtimeclass.NameOf(d.Pod); got != tt.class || d.Injected.ChosenBy != tt.by || d.Injected.Because != tt.says {
				t.Errorf("class %q by %q because %q; want %q by %q because %q", got, d.Injected.ChosenBy, d.Injected.Because, tt.class, tt.by, tt.says)
			}
			again, err := a.Create(d.Pod, namespace(tt.namespace))
			if err != nil || again.Pod.Annotations[runtimeclass.AnnotationInjected] != d.Pod.Annotations[runtimeclass.AnnotationInjected] {
				t.Errorf("the second pass notes %q, %v; the first %q", again.Pod.Annotations, err, d.Pod.Annotations)
			}
		})
	}
}

// Of the classes that would do, one on a node that the pod may use comes first,
// however much more it costs, and classes of one kind are told apart by policies.
func TestFitLooksAtThePod(t *testing.T) {
	near, far := node("near", handler("near"), handler("other")), node("far", handler("far"))
	near.Labels, far.Labels = map[string]string{"zone": "a"}, map[string]string{"zone": "b"}
	a := policy.Admission{
		Classes: runtimeclass.NewMap(class("far", isolating("sandbox"), costing("1Mi")), class("near", isolating("vm"), costing("100Mi")), class("near-2", isolating("vm"), costing("90Mi"), handledBy("near"))),
		Fleet:   policy.NewFleet([]*corev1.Node{near, far}),
	}
	zone := func(name string) podOption {
		return with(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": name} })
	}
	affine := with(func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
		}}}}}
	})
	only := func(names ...string) policy.Set {
		return compiled(t, demand("only", v1alpha1.RuntimeClassPolicySpec{AllowedClasses: names}))
	}
	for name, tt := range map[string]struct {
		pod      *corev1.Pod
		policies policy.Set
		class    string
		says     string
	}{
		"anywhere":              {pod: pod(requiring("isolation=sandbox")), class: "far", says: "the least isolation"},
		"in a zone":             {pod: pod(requiring("isolation=sandbox"), zone("a")), class: "near-2", says: "the least overhead"},
		"by affinity":           {pod: pod(requiring("isolation=sandbox"), affine), class: "near-2"},
		"in no zone that there": {pod: pod(requiring("isolation=sandbox"), zone("c")), class: "far", says: "the least isolation"},
		"one of a kind":         {pod: pod(requiring("isolation=sandbox"), zone("a")), policies: only("near", "far"), class: "near", says: "nodes that the pod may use"},
	} {
		t.Run(name, func(t *testing.T) {
			a.Policies = tt.policies
			d, err := a.Create(tt.pod, namespace("team"))
			if err != nil || runtimeclass.NameOf(d.Pod) != tt.class || !strings.Contains(d.Pod.Annotations[runtimeclass.AnnotationInjected], tt.says) {
				t.Errorf("%v, class %s: %s", err, runtimeclass.NameOf(d.Pod), d.Pod.Annotations[runtimeclass.AnnotationInjected])
			}
		})
	}
}

func TestDefaultOfTheCluster(t *testing.T) {
	a := cluster(t)
	a.Default = "gvisor"
	d, err := a.Create(pod(), nil)
	if err != nil || runtimeclass.NameOf(d.Pod) != "gvisor" || !strings.Contains(d.Injected.ChosenBy, "gvisor") {
		t.Errorf("%+v, %v", d.Injected, err)
	}
	a.Default = "gone"
	_, err = a.Create(pod(), nil)
	refusedFor(t, err, runtimeclass.ReasonMissing, "the pod names no class and annotation fairlead.run/is-default-class of RuntimeClass gone gives it one, but there is no RuntimeClass")
}

// What an author writes into the annotation of what was injected is not repeated.
func TestForgedChoice(t *testing.T) {
	a := cluster(t, demand("all", v1alpha1.RuntimeClassPolicySpec{DefaultClass: "gvisor"}))
	forged := pod(of("kata"))
	forged.Annotations = map[string]string{runtimeclass.AnnotationInjected: `{"class":"kata","chosenBy":"the admin","because":"he said so"}`}
	d, err := a.Create(forged, nil)
	if err != nil || d.Injected.ChosenBy != "" || d.Injected.Because != "" {
		t.Errorf("%+v, %v", d.Injected, err)
	}
}

func TestCheck(t *testing.T) {
	vm := func(s *v1alpha1.RuntimeClassPolicySpec) { s.MinimumIsolation = v1alpha1.IsolationVM }
	only := func(names ...string) func(*v1alpha1.RuntimeClassPolicySpec) {
		return func(s *v1alpha1.RuntimeClassPolicySpec) { s.AllowedClasses = names }
	}
	quota := func(class string, n int32) func(*v1alpha1.RuntimeClassPolicySpec) {
		return func(s *v1alpha1.RuntimeClassPolicySpec) {
			s.Quota = []v1alpha1.ClassQuota{{ClassName: class, Pods: n}}
		}
	}
	features := func(s *v1alpha1.RuntimeClassPolicySpec) { s.RequiredFeatures = []v1alpha1.Feature{"checkpoint"} }
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		policy func(*v1alpha1.RuntimeClassPolicySpec)
		reason runtimeclass.Reason // empty: admitted
		says   string
	}{
		"isolation, too little":       {pod(of("gvisor")), vm, policy.ReasonIsolation, "RuntimeClassPolicy p demands isolation vm, and RuntimeClass gvisor has sandbox"},
		"isolation, no class":         {pod(), vm, policy.ReasonIsolation, "no RuntimeClass has none"},
		"isolation, enough":           {pod(of("kata")), vm, "", ""},
		"allowed":                     {pod(of("kata")), only("kata", "runc"), "", ""},
		"not allowed":                 {pod(of("gvisor")), only("kata", ""), policy.ReasonNotAllowed, "does not allow RuntimeClass gvisor, only none, kata"},
		"none not allowed":            {pod(), only("kata"), policy.ReasonNotAllowed, "does not allow no RuntimeClass, only kata"},
		"none allowed":                {pod(), only("kata", ""), "", ""},
		"feature":                     {pod(of("fire")), features, "", ""},
		"feature, unknown":            {pod(of("kata")), features, policy.ReasonFeature, "demands checkpoint, which RuntimeClass kata is not known to have on every node: neither its nodes nor its annotations tell"},
		"feature, no class":           {pod(), features, policy.ReasonFeature, "the pod has no class"},
		"quota, full":                 {pod(of("kata")), quota("kata", 2), policy.ReasonQuota, "allows 2 pods with RuntimeClass kata in namespace team, and there are 2"},
		"quota, room":                 {pod(of("kata")), quota("kata", 3), "", ""},
		"quota of another":            {pod(of("kata")), quota("runc", 0), "", ""},
		"quota, no class":             {pod(), quota("", 0), policy.ReasonQuota, "allows 0 pods with no RuntimeClass"},
		"network of the node in a VM": {pod(of("kata"), with(hostNetwork)), nil, policy.ReasonUnsupported, "RuntimeClass kata has no hostNetwork: a virtual machine has its own network"},
		"network of the node":         {pod(of("gvisor"), with(hostNetwork)), nil, "", ""},
		"processes of the node":       {pod(of("gvisor"), with(func(s *corev1.PodSpec) { s.HostPID = true })), nil, policy.ReasonUnsupported, "a sandbox has its own processes"},
		"volume that cannot be": {pod(of("kata"), with(func(s *corev1.PodSpec) {
			s.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v"}}
		})), nil, "", ""},
		"block device in a sandbox": {pod(of("gvisor"), with(func(s *corev1.PodSpec) {
			s.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v"}}
		})), nil, policy.ReasonUnsupported, "spec.containers[c].volumeDevices: RuntimeClass gvisor has no blockVolumes"},
		"requirement of the pod": {pod(of("gvisor"), requiring("isolation=vm")), nil, policy.ReasonFeature, "RuntimeClass gvisor has isolation sandbox"},
		"requirement, no class":  {pod(requiring("isolation=vm")), nil, policy.ReasonFeature, "no RuntimeClass has isolation none"},
		"requirement, garbage":   {pod(of("gvisor"), requiring("=")), nil, policy.ReasonRequires, "cannot be read"},
		"missing":                {pod(of("gvizor")), nil, runtimeclass.ReasonMissing, "did you mean gvisor?"},
	} {
		t.Run(name, func(t *testing.T) {
			var policies []*v1alpha1.RuntimeClassPolicy
			if tt.policy != nil {
				p := demand("p", v1alpha1.RuntimeClassPolicySpec{})
				tt.policy(&p.Spec)
				policies = append(policies, p)
			}
			a := cluster(t, policies...)
			a.Usage = func(namespace, class string) int { return map[string]int{"team/kata": 2}[namespace+"/"+class] }
			// As a mutating pass leaves it: with the overhead of its class.
			if c := a.Classes.Get(runtimeclass.NameOf(tt.pod)); c != nil && c.Overhead != nil {
				tt.pod.Spec.Overhead = c.Overhead.PodFixed
			}
			_, err := a.Check(tt.pod, namespace("team"))
			if tt.reason == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			refusedFor(t, err, tt.reason, tt.says)
			if tt.policy == nil {
				return
			}
			for mode, warns := range map[v1alpha1.Mode]bool{v1alpha1.ModeWarn: true, v1alpha1.ModeAudit: false} {
				policies[0].Spec.Mode = mode
				a.Policies = compiled(t, policies...)
				v, err := a.Check(tt.pod, namespace("team"))
				if err != nil || (len(v.Warnings) == 1) != warns || !strings.Contains(v.Audit["p"], tt.says) {
					t.Errorf("mode %s: warnings %q, audit %q, error %v", mode, v.Warnings, v.Audit, err)
				}
			}
		})
	}
}

// An author should not learn of one mistake at a time.
func TestCheckTellsAll(t *testing.T) {
	a := cluster(t, demand("one", v1alpha1.RuntimeClassPolicySpec{MinimumIsolation: "vm"}), demand("two", v1alpha1.RuntimeClassPolicySpec{AllowedClasses: []string{"kata"}}))
	_, err := a.Check(pod(of("runc")), namespace("team"))
	refusedFor(t, err, policy.ReasonIsolation, "Policy one demands isolation vm")
	refusedFor(t, err, policy.ReasonIsolation, "Policy two does not allow RuntimeClass runc")
}

// What a policy demands that cannot be used nobody knows, so that it admits
// nothing where it might hold.
func TestUnusable(t *testing.T) {
	selecting := metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "yes"}}
	unreadable := metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
	for name, tt := range map[string]struct {
		spec    v1alpha1.RuntimeClassPolicySpec
		refuses bool // a pod in the namespace that it selects
		others  bool // and in another
		warns   bool
	}{
		"of some namespaces": {spec: v1alpha1.RuntimeClassPolicySpec{NamespaceSelector: selecting, MinimumIsolation: "much"}, refuses: true},
		"of who knows which": {spec: v1alpha1.RuntimeClassPolicySpec{NamespaceSelector: unreadable, DefaultClass: "gvisor"}, refuses: true, others: true},
		"of no known mode":   {spec: v1alpha1.RuntimeClassPolicySpec{NamespaceSelector: selecting, Mode: "forbid", DefaultClass: "gvisor"}, refuses: true},
		"that warns":         {spec: v1alpha1.RuntimeClassPolicySpec{NamespaceSelector: selecting, Mode: v1alpha1.ModeWarn, DefaultClass: "A"}, warns: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := demand("broken", tt.spec)
			_, why := policy.Compile(p)
			if why == nil {
				t.Fatal("it can be used")
			}
			a := cluster(t)
			a.Policies = policy.NewSet(policy.Unusable(p, why))
			v, err := a.Check(pod(of("runc")), namespace("team", "tenant", "yes"))
			if tt.refuses {
				refusedFor(t, err, policy.ReasonPolicyUnusable, "RuntimeClassPolicy broken cannot be used")
			} else if err != nil || (len(v.Warnings) == 1) != tt.warns {
				t.Errorf("%v, warnings %q", err, v.Warnings)
			}
			if _, err := a.Check(pod(of("runc")), namespace("other")); (err != nil) != tt.others {
				t.Errorf("in another namespace: %v", err)
			}
		})
	}
}

func TestDebug(t *testing.T) {
	yes := true
	debugged := func(options ...podOption) *corev1.Pod {
		p := pod(options...)
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}}
		return p
	}
	a := cluster(t)
	a.Classes = runtimeclass.NewMap(class("runc"), class("gvisor", isolating("sandbox"), saying(policy.AnnotationLacks, "privileged")))
	if _, err := a.Debug(debugged(of("runc")), pod(of("runc"))); err != nil {
		t.Error(err)
	}
	_, err := a.Debug(debugged(of("gvisor")), pod(of("gvisor")))
	refusedFor(t, err, policy.ReasonUnsupported, "RuntimeClass gvisor has no privileged")
	var r *runtimeclass.Rejection
	if errors.As(err, &r) && r.Field != "spec.ephemeralContainers[debugger].securityContext.privileged" {
		t.Errorf("field %s", r.Field)
	}
	had := with(func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes} })
	if _, err := a.Debug(debugged(of("gvisor"), had), pod(of("gvisor"), had)); err != nil {
		t.Errorf("what the pod has already: %v", err)
	}
	if _, err := a.Debug(debugged(of("gone")), pod(of("gone"))); err != nil {
		t.Errorf("a class that is gone: %v", err)
	}
}

func TestSupports(t *testing.T) {
	fleet := policy.NewFleet([]*corev1.Node{
		telling(node("a", withUserNamespaces("both", true), withUserNamespaces("some", true), handler("silent")), "both", "user-namespaces,seccomp,magic"),
		telling(node("b", withUserNamespaces("both", true), withUserNamespaces("some", false)), "both", "user-namespaces,seccomp"),
		node("c", handler("other")),
	})
	for name, tt := range map[string]struct {
		fleet   *policy.Fleet
		class   []classOption
		feature v1alpha1.Feature
		want    policy.Support
	}{
		"all nodes":                     {fleet, []classOption{handledBy("both")}, policy.UserNamespaces, policy.Supported},
		"some nodes":                    {fleet, []classOption{handledBy("some")}, policy.UserNamespaces, policy.Mixed},
		"one node says, one does not":   {fleet, []classOption{handledBy("both")}, "magic", policy.Mixed},
		"in Fairlead's words":           {fleet, []classOption{handledBy("both")}, "seccomp", policy.Supported},
		"what Fairlead did not find":    {fleet, []classOption{handledBy("both")}, "checkpoint", policy.Unsupported},
		"nothing is said":               {fleet, []classOption{handledBy("silent")}, policy.UserNamespaces, policy.Unknown},
		"no node":                       {fleet, []classOption{handledBy("nowhere")}, policy.UserNamespaces, policy.Unknown},
		"no fleet":                      {nil, []classOption{handledBy("both")}, policy.UserNamespaces, policy.Unknown},
		"the class lacks it":            {fleet, []classOption{handledBy("both"), saying(policy.AnnotationLacks, "user-namespaces")}, policy.UserNamespaces, policy.Unsupported},
		"the class supports it":         {fleet, []classOption{handledBy("some"), saying(policy.AnnotationSupports, "userNamespaces")}, policy.UserNamespaces, policy.Supported},
		"a VM":                          {fleet, []classOption{handledBy("silent"), isolating("vm")}, policy.UserNamespaces, policy.Unsupported},
		"a VM whose nodes have it":      {fleet, []classOption{handledBy("both"), isolating("vm")}, policy.UserNamespaces, policy.Supported},
		"a VM whose class says it has":  {fleet, []classOption{isolating("vm"), saying(policy.AnnotationSupports, "hostNetwork")}, policy.HostNetwork, policy.Supported},
		"an annotation not to be read":  {fleet, []classOption{handledBy("silent"), saying(policy.AnnotationSupports, "user namespaces")}, policy.UserNamespaces, policy.Unknown},
		"nodes that the class does not": {fleet, []classOption{handledBy("some"), selecting("disk", "ssd")}, policy.UserNamespaces, policy.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := tt.fleet.Supports(class("x", tt.class...), tt.feature)
			if got != tt.want || why == "" {
				t.Errorf("%s (%s), want %s", got, why, tt.want)
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	no, strict, both, rro, yes := false, corev1.SupplementalGroupsPolicyStrict, corev1.MountPropagationBidirectional, corev1.RecursiveReadOnlyEnabled, true
	p := pod(with(func(s *corev1.PodSpec) {
		s.HostNetwork, s.HostPID, s.HostIPC, s.HostUsers = true, true, true, &no
		s.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
		s.Volumes = []corev1.Volume{
			{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
			{Name: "i", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}},
			{Name: "h2", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
		}
		s.InitContainers = []corev1.Container{{Name: "init", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}
		s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "h", MountPropagation: &both, RecursiveReadOnly: &rro}}
		s.Containers[0].VolumeDevices = []corev1.VolumeDevice{{}}
	}))
	want := map[v1alpha1.Feature]string{
		policy.HostNetwork: "spec.hostNetwork", policy.HostPID: "spec.hostPID", policy.HostIPC: "spec.hostIPC", policy.UserNamespaces: "spec.hostUsers",
		policy.SupplementalGroups: "spec.securityContext.supplementalGroupsPolicy",
		"hostPathVolumes":         "spec.volumes[h].hostPath", "imageVolumes": "spec.volumes[i].image",
		policy.Privileged: "spec.initContainers[init].securityContext.privileged", policy.BlockVolumes: "spec.containers[c].volumeDevices",
		policy.BidirectionalMounts: "spec.containers[c].volumeMounts[h].mountPropagation", policy.RecursiveReadOnlyMounts: "spec.containers[c].volumeMounts[h].recursiveReadOnly",
	}
	got := map[v1alpha1.Feature]string{}
	for _, n := range policy.Needs(p) {
		got[n.Feature] = n.Field
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := policy.Needs(pod()); len(n) != 0 {
		t.Errorf("a plain pod needs %v", n)
	}
}

func refusedFor(t *testing.T, err error, reason runtimeclass.Reason, says string) {
	t.Helper()
	var r *runtimeclass.Rejection
	if !errors.As(err, &r) || r.Reason != reason || r.Field == "" || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %s that says %q", err, reason, says)
	}
}

// The table has what a real API server answers; see test/e2e.
func TestCompile(t *testing.T) {
	for _, c := range classtable.Policies() {
		t.Run(c.Name, func(t *testing.T) {
			_, err := policy.Compile(c.Policy)
			var got []string
			var all utilerrors.Aggregate
			if errors.As(err, &all) {
				for _, fault := range all.Errors() {
					var f *field.Error
					if !errors.As(fault, &f) {
						t.Fatalf("no fault of a field: %v", fault)
					}
					got = append(got, f.Field)
				}
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.Faults) || err != nil && !strings.Contains(err.Error(), "RuntimeClassPolicy "+c.Policy.Name) {
				t.Errorf("refused for %q, want %q: %v", got, c.Faults, err)
			}
		})
	}
}

func TestFor(t *testing.T) {
	all := compiled(t,
		demand("all", v1alpha1.RuntimeClassPolicySpec{MinimumIsolation: "none"}),
		demand("ci", v1alpha1.RuntimeClassPolicySpec{MinimumIsolation: "none", NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"trust": "low"}}}),
		demand("not-ops", v1alpha1.RuntimeClassPolicySpec{MinimumIsolation: "none", NamespaceSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"ops"}},
		}}}),
	)
	for name, tt := range map[string]struct {
		ns   *corev1.Namespace
		want []string
	}{
		"by label": {namespace("ci", "trust", "low"), []string{"all", "ci", "not-ops"}},
		"by name":  {namespace("ops"), []string{"all"}},
		"unknown":  {nil, []string{"all"}},
	} {
		var got []string
		for _, p := range all.For(tt.ns) {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
