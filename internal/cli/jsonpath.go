package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// readTemplate reads what follows -o jsonpath, in kubectl's form of JSONPath. Without
// braces it is one path: .metadata.name, or metadata.name.
func readTemplate(text string) (*jsonpath.JSONPath, error) {
	text, ok := strings.CutPrefix(text, "=")
	if !ok || text == "" {
		return nil, usageError{fmt.Errorf("-o jsonpath%s has no template; want -o jsonpath='{.metadata.name}', for example", text)}
	}
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	out := jsonpath.New("-o jsonpath").AllowMissingKeys(true)
	if err := out.Parse(text); err != nil {
		return nil, usageError{fmt.Errorf("-o jsonpath=%s is no template: %w; want -o jsonpath='{.items[*].metadata.name}', for example", text, err)}
	}
	return out, nil
}

// printTemplate writes what a template takes from v, and no end of line, as kubectl.
func (a *app) printTemplate(text string, v any) error {
	template, err := readTemplate(text)
	if err != nil {
		return err
	}
	data, err := json.Marshal(v) // by the names of the manifests
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	if err := template.Execute(a.out, plain); err != nil {
		return fmt.Errorf("-o jsonpath%s: %w", text, err)
	}
	return nil
}
