package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// grant is one verb of a rule, with the comment beside it.
type grant struct {
	groups, resources, names []string
	verb, why                string
}

// role is a Role or a ClusterRole.
type role struct {
	kind, name, namespace string
	grants                []grant
}

// member is the value of a key of a mapping, or nil.
func member(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

func list(n *yaml.Node) (out []string) {
	if n != nil {
		for _, item := range n.Content {
			out = append(out, item.Value)
		}
	}
	return out
}

// rolesIn are the roles of a manifest. It is an error if a verb has no comment, since
// the comment is why the verb is granted.
func rolesIn(file, text string) ([]role, error) {
	var out []role
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if len(document.Content) == 0 {
			continue
		}
		o := document.Content[0]
		kind, meta := scalar(member(o, "kind")), member(o, "metadata")
		if kind != "Role" && kind != "ClusterRole" {
			continue
		}
		r := role{kind: kind, name: scalar(member(meta, "name")), namespace: scalar(member(meta, "namespace"))}
		for _, rule := range member(o, "rules").Content {
			grants, err := grantsOf(rule)
			if err != nil {
				return nil, fmt.Errorf("%s: %s %s: %w", file, kind, r.name, err)
			}
			r.grants = append(r.grants, grants...)
		}
		out = append(out, r)
	}
}

func grantsOf(rule *yaml.Node) (out []grant, err error) {
	resources := list(member(rule, "resources"))
	resources = append(resources, list(member(rule, "nonResourceURLs"))...)
	if err := allowed(slices.Concat(resources, list(member(rule, "apiGroups")), list(member(rule, "verbs")))); err != nil {
		return nil, err
	}
	for _, verb := range member(rule, "verbs").Content {
		why := strings.TrimSpace(strings.TrimPrefix(verb.LineComment, "#"))
		if why == "" {
			return nil, fmt.Errorf("verb %s of %s has no comment that says why", verb.Value, strings.Join(resources, ", "))
		}
		out = append(out, grant{
			groups: list(member(rule, "apiGroups")), resources: resources, names: list(member(rule, "resourceNames")),
			verb: verb.Value, why: why,
		})
	}
	return out, nil
}

// never is what no account of Fairlead gets: everything, and what makes more of itself.
var never = []string{
	"*", "roles", "clusterroles", "rolebindings", "clusterrolebindings", "serviceaccounts/token", "escalate", "bind", "impersonate",
}

func allowed(words []string) error {
	for _, word := range words {
		if slices.Contains(never, word) {
			return fmt.Errorf("%q is granted, which no account is to have", word)
		}
	}
	return nil
}

const pageHead = `# What Fairlead may do in a cluster

Made from the manifests in deploy by ` + "`make generate`" + `; each reason is the comment beside the verb there. There are no other roles, and the account of the pods that change nodes has none at all. No account has
a ` + "`*`" + `, or a right over roles, bindings or the tokens of others: the page cannot be made then. Tests run webhook and operator and compare what they ask for with these tables, so that a right that nothing
needs is found; in a seed that is a server in memory, which stands for Gardener's.
`

// rolesPage is docs/rbac.md: the roles in manifests, those of the webhook in a garden
// cluster, and those that the chart makes for a seed of Gardener's in their place.
func rolesPage(files, inGarden, inSeed map[string]string) (string, error) {
	var b strings.Builder
	b.WriteString(pageHead)
	if err := writeRoles(&b, files, plainFolder); err != nil {
		return "", err
	}
	b.WriteString("\n# In a garden cluster of Gardener's\n\nWith `webhook.garden: true` the chart gives the webhook these, and no others.\n")
	if err := writeRoles(&b, inGarden, plainFolder); err != nil {
		return "", err
	}
	b.WriteString("\n# In a seed of Gardener's\n\nWith `operator.gardener: true` the chart gives the operator these in the place of those above.\n")
	err := writeRoles(&b, inSeed, plainFolder+"charts/fairlead/templates/")
	return b.String(), err
}

// plainFolder is where manifests are, from the page.
const plainFolder = "../deploy/"

// writeRoles writes about the roles in files, which are below the folder.
func writeRoles(b *strings.Builder, files map[string]string, folder string) error {
	for _, file := range slices.Sorted(maps.Keys(files)) {
		roles, err := rolesIn("deploy/"+file, files[file])
		if err != nil {
			return err
		}
		for _, r := range roles {
			where := "the whole cluster"
			if r.namespace != "" {
				where = "namespace `" + r.namespace + "` only"
			}
			fmt.Fprintf(b, "\n## %s %s\n\nIn %s. [%s](%s%s)\n\n| resource | verb | why |\n| --- | --- | --- |\n", r.kind, r.name, where, file, folder, file)
			for _, g := range r.grants {
				fmt.Fprintf(b, "| %s | %s | %s |\n", g.what(), g.verb, g.why)
			}
		}
	}
	return nil
}

// what is the resources with their groups and the names that the rule is limited to.
func (g grant) what() string {
	var out []string
	for _, resource := range g.resources {
		kind, sub, isSub := strings.Cut(resource, "/")
		for _, group := range g.groups {
			if group != "" {
				kind += "." + group
			}
		}
		if resource = kind; isSub {
			resource += "/" + sub
		}
		out = append(out, "`"+resource+"`")
	}
	text := strings.Join(out, ", ")
	if len(g.names) > 0 {
		text += " named `" + strings.Join(g.names, "`, `") + "`"
	}
	return text
}
