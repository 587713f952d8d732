package rules

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"sigs.k8s.io/yaml"
)

// query is what somebody asks a Prometheus.
type query struct{ where, expr string }

type panel struct {
	ID          int                      `json:"id"`
	Type        string                   `json:"type"`
	Title       string                   `json:"title"`
	Description string                   `json:"description"`
	Datasource  struct{ UID string }     `json:"datasource"`
	GridPos     struct{ H, W, X, Y int } `json:"gridPos"`
	Targets     []struct{ Expr string }  `json:"targets"`
}

type dashboard struct {
	UID           string  `json:"uid"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []struct{ Name, Type, Definition string } `json:"list"`
	} `json:"templating"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func theDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "deploy/monitoring/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 20 {
		t.Fatalf("%d panels", len(d.Panels))
	}
	return d
}

func theAlerts(t *testing.T) []alert {
	t.Helper()
	var rule struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       struct {
			Groups []struct {
				Name  string  `json:"name"`
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "deploy/monitoring/prometheusrule.yaml")), &rule); err != nil {
		t.Fatal(err)
	}
	var out []alert
	names := map[string]bool{}
	for _, g := range rule.Spec.Groups {
		if names[g.Name] || g.Name == "" {
			t.Errorf("two groups %q", g.Name)
		}
		names[g.Name] = true
		out = append(out, g.Rules...)
	}
	if len(out) < 10 {
		t.Fatalf("%d alerts", len(out))
	}
	return out
}

// queries are those of the dashboard and of the alerts.
func queries(t *testing.T) []query {
	var out []query
	d := theDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			out = append(out, query{fmt.Sprintf("panel %d, %s", p.ID, p.Title), target.Expr})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			out = append(out, query{"variable " + v.Name, v.Definition})
		}
	}
	for _, a := range theAlerts(t) {
		out = append(out, query{"alert " + a.Alert, a.Expr})
	}
	return out
}

var (
	piece    = regexp.MustCompile(`^(?:\s+|"[^"\\]*"|[A-Za-z_][A-Za-z0-9_]*|\d+(?:\.\d+)?|\[(?:\d+[smhd]|\$__rate_interval)\]|[=!]~|[=!<>]=|[-+*/<>(){},=])`)
	worded   = regexp.MustCompile(`^[A-Za-z_]`)
	grouping = regexp.MustCompile(`\b(?:by|on) ?\(([^)]*)\)`)
	matcher  = regexp.MustCompile(`([A-Za-z_]+) ?(=~|!~|!=|=) ?"([^"]*)"`)
	// replicated is what has to be around what all replicas tell alike.
	replicated = regexp.MustCompile(`max(?: by \([a-z_, ]*\))? ?\((?:increase\()?$`)
)

// Words of the language that stand where metrics could, and labels that a scrape
// adds to what is scraped.
var (
	vocabulary   = strings.Fields("sum max min count rate increase histogram_quantile absent time vector by on and or unless label_values up")
	targetLabels = []string{"job", "instance", "namespace", "pod"}
)

// foreign are metrics of the library that the operator is built on. Others are built on
// it, too, so that queries have to say whose they mean.
var foreign = map[string]metric{
	"leader_election_master_status":             {kind: "gauge", labels: []string{"name"}, literals: map[string]bool{"fairlead-operator": true}},
	"controller_runtime_reconcile_errors_total": {kind: "counter", labels: []string{"controller"}},
	"controller_runtime_reconcile_panics_total": {kind: "counter", labels: []string{"controller"}},
}

// known is a metric that a query asks for; it is false for what is none.
func known(all map[string]metric, piece string) (m metric, ok, is bool) {
	if m, ok := foreign[piece]; ok {
		return m, true, true
	}
	if !strings.HasPrefix(piece, "fairlead_") {
		return metric{}, false, false
	}
	m, ok = family(all, piece)
	return m, ok, true
}

// tokens are a query in pieces, without white space; nil if it cannot be read.
func tokens(expr string) ([]string, string) {
	var out, open []string
	for rest := expr; rest != ""; {
		part := piece.FindString(rest)
		if part == "" {
			return nil, "what is " + rest
		}
		rest = rest[len(part):]
		switch part {
		case "(", "{":
			open = append(open, map[string]string{"(": ")", "{": "}"}[part])
		case ")", "}":
			if len(open) == 0 || open[len(open)-1] != part {
				return nil, "a " + part + " too many"
			}
			open = open[:len(open)-1]
		}
		if strings.TrimSpace(part) != "" {
			out = append(out, part)
		}
	}
	if len(open) > 0 {
		return nil, "no " + open[len(open)-1]
	}
	return out, ""
}

// family is the metric that a series belongs to.
func family(all map[string]metric, series string) (metric, bool) {
	if m, ok := all[series]; ok && m.kind != "histogram" {
		return m, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, ok := strings.CutSuffix(series, suffix)
		m, known := all[base]
		if !ok || !known || m.kind != "histogram" {
			continue
		}
		if suffix == "_bucket" {
			m.labels = append(slices.Clone(m.labels), "le")
		}
		return m, true
	}
	return metric{}, false
}

// faults is what is wrong with a query, and the metrics that it asks for.
func faults(all map[string]metric, expr string) (wrong, asked []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	pieces, why := tokens(expr)
	if why != "" {
		return []string{why}, nil
	}
	labels := slices.Clone(targetLabels)
	for i, piece := range pieces {
		m, ok, is := known(all, piece)
		if !is {
			continue
		}
		if !ok {
			add("no program has the metric %s", piece)
			continue
		}
		asked, labels = append(asked, piece), append(labels, m.labels...)
		if i+1 == len(pieces) || pieces[i+1] != "{" {
			continue
		}
		for _, bad := range badMatchers(m, pieces[i+2:]) {
			add("%s: %s", piece, bad)
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				add("no metric here has label %s", label)
			}
		}
	}
	labels = append(labels, "__name__")
	for _, piece := range pieces {
		if _, _, is := known(all, piece); worded.MatchString(piece) && !is && !slices.Contains(vocabulary, piece) && !slices.Contains(labels, piece) {
			add("what is %s?", piece)
		}
	}
	return wrong, asked
}

// badMatchers looks at what stands in braces. A value that the metric's package
// has nowhere is one that no series has.
func badMatchers(m metric, pieces []string) []string {
	var out []string
	text := strings.Join(pieces[:slices.Index(pieces, "}")], "")
	rest := matcher.ReplaceAllStringFunc(text, func(one string) string {
		part := matcher.FindStringSubmatch(one)
		label, value := part[1], part[3]
		if slices.Contains(targetLabels, label) {
			return ""
		}
		if !slices.Contains(m.labels, label) {
			out = append(out, "it has no label "+label)
		}
		for word := range strings.SplitSeq(value, "|") {
			if !strings.HasPrefix(word, "$") && !m.literals[word] {
				out = append(out, fmt.Sprintf("%s is never %q", label, word))
			}
		}
		return ""
	})
	if strings.Trim(rest, ",") != "" {
		out = append(out, "cannot read {"+text+"}")
	}
	return out
}

// What dashboard and alerts ask for exists, with these labels and values.
func TestQueriesFindWhatTheyAskFor(t *testing.T) {
	all := metrics(t)
	for _, q := range queries(t) {
		wrong, asked := faults(all, q.expr)
		if len(wrong) > 0 || len(asked) == 0 && !strings.Contains(q.expr, "up{") && !strings.Contains(q.expr, "label_values") {
			t.Errorf("%s: %s\n\t%s", q.where, strings.Join(wrong, "; "), q.expr)
		}
	}
}

// The checks above find what they are for.
func TestFaultyQueriesAreFound(t *testing.T) {
	all := map[string]metric{
		"fairlead_a":         {kind: "gauge", labels: []string{"class", "state"}, literals: map[string]bool{"open": true}},
		"fairlead_b_seconds": {kind: "histogram", labels: []string{"webhook"}},
	}
	for expr, want := range map[string]string{
		`max by (class) (fairlead_a{state="open"}) > 0`:                                       "",
		`histogram_quantile(0.9, sum by (webhook, le) (rate(fairlead_b_seconds_bucket[5m])))`: "",
		`sum(rate(fairlead_b_seconds_count[$__rate_interval])) or vector(0)`:                  "",
		`max(fairlead_c)`:                                    "no program has the metric fairlead_c",
		`max(fairlead_b_seconds)`:                            "no program has the metric fairlead_b_seconds",
		`max(fairlead_a_count)`:                              "no program has the metric fairlead_a_count",
		`max(fairlead_a`:                                     "no )",
		`max(fairlead_a))`:                                   "a ) too many",
		`max(fairlead_a{state="shut"})`:                      `state is never "shut"`,
		`max(fairlead_a{state=~"open|shut"})`:                `state is never "shut"`,
		`max(fairlead_a{kind="open"})`:                       "it has no label kind",
		`max(fairlead_a{state})`:                             "cannot read {state}",
		`max by (webhook) (fairlead_a)`:                      "no metric here has label webhook",
		`max(leader_election_master_status{name="another"})`: `name is never "another"`,
		`maximum(fairlead_a)`:                                "what is maximum?",
		`max(fairlead_a) § 2`:                                "what is § 2",
		`rate(fairlead_b_seconds_sum[5 minutes])`:            "what is [5 minutes])",
	} {
		wrong, _ := faults(all, expr)
		if got := strings.Join(wrong, "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, wanted %q", expr, got, want)
		}
	}
}

// All replicas of the webhook tell the same of the cluster, which is there once.
func TestReplicasAreNotAddedUp(t *testing.T) {
	for _, q := range queries(t) {
		for rest, before := q.expr, ""; ; {
			i := strings.Index(rest, "fairlead_cluster_")
			if i < 0 || strings.HasPrefix(q.expr, "label_values") {
				break
			}
			before += rest[:i]
			if !replicated.MatchString(before) {
				t.Errorf("%s: no max around what follows %s", q.where, before)
			}
			before, rest = before+"fairlead_cluster_", rest[i+len("fairlead_cluster_"):]
		}
	}
}

func TestDashboard(t *testing.T) {
	d, all := theDashboard(t), metrics(t)
	if d.SchemaVersion < 41 || d.UID == "" || d.Templating.List[0].Type != "datasource" {
		t.Errorf("schema %d, uid %q, variables %+v", d.SchemaVersion, d.UID, d.Templating.List)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	shown := ""
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d, %q: the id is not unique, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies on %q, or outside", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "" || p.Datasource.UID != "${datasource}") {
			t.Errorf("%q: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			shown += target.Expr + "\n"
		}
	}
	for name := range all {
		if !regexp.MustCompile(name + `\b|` + name + `_(bucket|sum|count)\b`).MatchString(shown) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// told are the labels that an alert has for its texts.
func told(expr string) map[string]string {
	labels := targetLabels
	if all := grouping.FindAllStringSubmatch(expr, -1); len(all) > 0 {
		labels = strings.Split(strings.ReplaceAll(all[0][1], " ", ""), ",")
	} else if strings.HasPrefix(expr, "max(") || strings.HasPrefix(expr, "count(") || strings.HasPrefix(expr, "absent(") {
		labels = nil
	}
	out := map[string]string{}
	for _, label := range labels {
		out[label] = "X"
	}
	return out
}

func TestAlerts(t *testing.T) {
	names, pages := map[string]bool{}, read(t, "docs/monitoring.md")
	human := func(any) string { return "1" }
	functions := template.FuncMap{"humanizeDuration": human, "humanizePercentage": human}
	for _, a := range theAlerts(t) {
		if names[a.Alert] || !strings.HasPrefix(a.Alert, "Fairlead") {
			t.Errorf("name %q", a.Alert)
		}
		names[a.Alert] = true
		if !strings.Contains(pages, "`"+a.Alert+"`") {
			t.Errorf("%s is not in docs/monitoring.md", a.Alert)
		}
		if _, err := time.ParseDuration(a.For); err != nil && a.For != "" {
			t.Errorf("%s: %v", a.Alert, err)
		}
		if !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) || len(a.Labels) != 1 {
			t.Errorf("%s: labels %v", a.Alert, a.Labels)
		}
		if keys := slices.Sorted(maps.Keys(a.Annotations)); !slices.Equal(keys, []string{"description", "summary"}) {
			t.Errorf("%s: annotations %v", a.Alert, keys)
		}
		for _, text := range a.Annotations {
			parsed, err := template.New("").Option("missingkey=error").Funcs(functions).Parse("{{$labels := .labels}}{{$value := 1.0}}" + text)
			if err == nil {
				err = parsed.Execute(io.Discard, map[string]any{"labels": told(a.Expr)})
			}
			if err != nil || !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q: %v", a.Alert, text, err)
			}
		}
	}
}

// checkMonitor compares a monitor, and the Service that it may have, with what it is for.
func checkMonitor(t *testing.T, file, of string) {
	t.Helper()
	type endpoint struct{ Port, Path, Interval string }
	var found int
	deployment := read(t, of)
	for text := range strings.SplitSeq(read(t, file), "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct {
				Namespace string
				Labels    map[string]string
			}
			Spec struct {
				Selector            map[string]any
				Ports               []struct{ Name, TargetPort string }
				PodMetricsEndpoints []endpoint
				Endpoints           []endpoint
			}
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		selector := o.Spec.Selector
		if labels, ok := selector["matchLabels"].(map[string]any); ok {
			selector = labels
		}
		ends := append(o.Spec.PodMetricsEndpoints, o.Spec.Endpoints...)
		for _, p := range o.Spec.Ports {
			if p.Name == p.TargetPort { // of the Service, whose labels its monitor selects
				ends = append(ends, endpoint{Port: p.Name, Path: "/metrics", Interval: "none"})
			}
		}
		app := o.Metadata.Labels["app.kubernetes.io/name"]
		if len(selector) != 1 || selector["app.kubernetes.io/name"] != app || !strings.Contains(deployment, "labels: {app.kubernetes.io/name: "+app+"}") || !strings.Contains(deployment, "namespace: "+o.Metadata.Namespace+"\n") {
			t.Errorf("%s: %s selects %v in %s, which does not fit %s", file, o.Kind, selector, o.Metadata.Namespace, of)
		}
		if len(ends) != 1 || ends[0].Path != "/metrics" || ends[0].Interval == "" || !strings.Contains(deployment, "{name: "+ends[0].Port+", containerPort: 8080}") {
			t.Errorf("%s: %s scrapes %+v, which %s does not serve", file, o.Kind, ends, of)
		}
		if o.Kind != "Service" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%s has %d monitors", file, found)
	}
}

// What is scraped is what the manifests of the webhook and the documented
// configuration of the daemon serve.
func TestScrapes(t *testing.T) {
	for part, monitors := range map[string][]string{"webhook": {"podmonitor", "servicemonitor"}, "operator": {"podmonitor-operator", "servicemonitor-operator"}} {
		for _, name := range monitors {
			checkMonitor(t, "deploy/monitoring/"+name+".yaml", "deploy/"+part+"/20-deployment.yaml")
		}
	}
	var config struct {
		RuleFiles     []string `json:"rule_files"`
		ScrapeConfigs []struct {
			Job     string           `json:"job_name"`
			Every   string           `json:"scrape_interval"`
			Where   []map[string]any `json:"kubernetes_sd_configs"`
			Relabel []map[string]any `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "deploy/monitoring/prometheus.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	asked := ""
	for _, a := range theAlerts(t) {
		asked += a.Expr
	}
	for _, job := range regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(asked, -1) {
		if len(config.ScrapeConfigs) < 2 || config.ScrapeConfigs[1].Job != job[1] {
			t.Errorf("an alert is about job %s, and the jobs are %+v", job[1], config.ScrapeConfigs)
		}
	}
	if port := fmt.Sprint(config.ScrapeConfigs[1].Relabel[0]["replacement"]); !strings.Contains(read(t, "docs/monitoring.md"), `"127.0.0.1`+strings.TrimPrefix(port, "$1")+`"`) {
		t.Errorf("the daemon is scraped at %s", port)
	}
}
