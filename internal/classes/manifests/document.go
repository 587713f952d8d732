package manifests

import (
	"regexp"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"

	"fairlead.run/internal/node/manifest/fields"
)

// document is the text of one document. It is taken apart for its lines when
// somebody asks for one: few do, and that takes memory.
type document struct {
	chunk
	root *yamlv3.Node // nil where lines are not known
	end  int          // the last line
	read bool
}

// node is the text's first value; nil where only another parser can read it.
func (d *document) node() *yamlv3.Node {
	if d.read {
		return d.root
	}
	d.read, d.end = true, d.last()
	defer func() { _ = recover() }() // the parser is another's, and the text a stranger's
	var root yamlv3.Node
	if yamlv3.Unmarshal(d.text, &root) == nil && len(root.Content) > 0 {
		d.root = root.Content[0]
	}
	return d.root
}

// lineOf is the line of a field of the first value, or of the nearest thing
// around it that is written, or first.
func (d *document) lineOf(field string, first int) int {
	node, line := d.node(), first
	for _, step := range fields.Steps(field) {
		if node == nil {
			break
		}
		next, at := child(node, step)
		if next == nil {
			break
		}
		// YAML counts line breaks that editors do not.
		node, line = next, min(at+d.line-1, d.end)
	}
	return line
}

func child(n *yamlv3.Node, name string) (*yamlv3.Node, int) {
	for n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
		for _, element := range n.Content {
			if v, _ := child(element, "name"); v != nil && v.Value == name {
				return element, element.Line
			}
		}
	}
	return nil, 0
}

var lineInError = regexp.MustCompile(`line (\d+): ?`)
