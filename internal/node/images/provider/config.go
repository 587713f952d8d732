// Package provider asks credential provider plugins: programs that know
// credentials for registries, as a kubelet runs them. It reads their
// configuration, runs them, and keeps their answers for as long as they say.
//
// It pulls nothing, and knows of no pull secrets.
package provider

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/node/images"
)

// The groups whose versions are spoken, and the kind of a configuration.
const (
	configGroup = "kubelet.config.k8s.io/"
	configKind  = "CredentialProviderConfig"
	pluginGroup = "credentialprovider.kubelet.k8s.io/"
)

// versions are those of either group, the newest first. They differ in tokenAttributes, which
// the newest alone has for plugins.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// spoken says whether a version is one of a group's.
func spoken(version, group string) bool {
	v, of := strings.CutPrefix(version, group)
	return of && slices.Contains(versions, v)
}

// file is a configuration as it is written.
type file struct {
	metav1.TypeMeta `json:",inline"`

	Providers []Plugin `json:"providers"`
}

// Plugin is the configuration of one plugin. Its fields are those of
// CredentialProvider in kubelet.config.k8s.io/v1.
type Plugin struct {
	Name                 string           `json:"name"`
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	APIVersion           string           `json:"apiVersion"`
	Args                 []string         `json:"args,omitempty"`
	Env                  []Variable       `json:"env,omitempty"`
	TokenAttributes      *TokenAttributes `json:"tokenAttributes,omitempty"`
}

// Variable is one of a plugin's environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TokenAttributes say which token of a pod's service account a plugin gets.
type TokenAttributes struct {
	Audience     string    `json:"serviceAccountTokenAudience"`
	CacheType    CacheType `json:"cacheType"`
	Require      *bool     `json:"requireServiceAccount"`
	RequiredKeys []string  `json:"requiredServiceAccountAnnotationKeys,omitempty"`
	OptionalKeys []string  `json:"optionalServiceAccountAnnotationKeys,omitempty"`
}

// CacheType says for whom an answer to a token is good.
type CacheType string

// The cache types.
const (
	PerToken          CacheType = "Token"
	PerServiceAccount CacheType = "ServiceAccount"
)

// Load reads a configuration: a file, or all .yaml, .yml and .json files of a
// folder in the order of their names.
func Load(path string) ([]Plugin, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
	}
	paths := []string{path}
	if info.IsDir() {
		if paths, err = filesOf(path); err != nil {
			return nil, err
		}
	}
	var out []Plugin
	from := map[string]string{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
		}
		plugins, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("configuration of credential providers %s: %w", p, err)
		}
		for _, pl := range plugins {
			if before := from[pl.Name]; before != "" {
				return nil, fmt.Errorf("configuration of credential providers %s: provider %q is in %s, too; names are used once", p, pl.Name, before)
			}
			from[pl.Name] = p
		}
		out = append(out, plugins...)
	}
	return out, nil
}

func filesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the configuration of credential providers: %w", err)
	}
	var out []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the folder %s has no configuration of credential providers: none of its files ends with .yaml, .yml or .json: %w", dir, fs.ErrNotExist)
	}
	return out, nil
}

func decode(data []byte) ([]Plugin, error) {
	if strings.Contains("\n"+strings.TrimPrefix(strings.TrimSpace(string(data)), "---"), "\n---") {
		return nil, errors.New("it has more than one document; put each into a file of a folder")
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	var f file
	strict, err := kjson.UnmarshalStrict(text, &f)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	if !spoken(f.APIVersion, configGroup) || f.Kind != configKind {
		return nil, fmt.Errorf("it is %s %q; want kind: %s, apiVersion: %s%s", f.APIVersion, f.Kind, configKind, configGroup, versions[0])
	}
	if len(f.Providers) == 0 {
		return nil, errors.New("providers is empty; name at least one")
	}
	var errs []error
	seen := map[string]bool{}
	for i, p := range f.Providers {
		at := fmt.Sprintf("providers[%d]", i)
		if p.Name != "" {
			at += " (" + p.Name + ")"
		}
		problems := p.check()
		if p.Name != "" && seen[p.Name] {
			problems = append(problems, "name is used before; names are used once")
		}
		seen[p.Name] = true
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("%s: %s", at, problem))
		}
	}
	return f.Providers, errors.Join(errs...)
}

// check lists what is wrong with a plugin's configuration.
func (p *Plugin) check() []string {
	var out []string
	bad := func(wrong bool, problem string) {
		if wrong {
			out = append(out, problem)
		}
	}
	bad(p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ \t\n"),
		"name has to be that of a program in the folder of plugins, without slashes and spaces")
	bad(len(p.MatchImages) == 0, "matchImages is empty; the plugin would never be asked")
	for _, m := range p.MatchImages {
		if err := images.CheckPattern(m); err != nil {
			out = append(out, "matchImages: "+err.Error())
		}
	}
	bad(p.DefaultCacheDuration == nil, `defaultCacheDuration is missing; "0s" keeps nothing`)
	bad(p.DefaultCacheDuration != nil && p.DefaultCacheDuration.Duration < 0, "defaultCacheDuration is negative")
	bad(!spoken(p.APIVersion, pluginGroup), fmt.Sprintf("apiVersion is %q; it is %s%s", p.APIVersion, pluginGroup, strings.Join(versions, ", ")))
	for _, v := range p.Env {
		bad(v.Name == "" || strings.ContainsAny(v.Name, "=\x00"), fmt.Sprintf("env: %q is no name of a variable", v.Name))
	}
	if p.TokenAttributes != nil {
		bad(p.APIVersion != pluginGroup+versions[0], fmt.Sprintf("tokenAttributes needs apiVersion: %s%s", pluginGroup, versions[0]))
		out = append(out, p.TokenAttributes.check()...)
	}
	return out
}

func (t *TokenAttributes) check() []string {
	var out []string
	bad := func(wrong bool, problem string) {
		if wrong {
			out = append(out, "tokenAttributes."+problem)
		}
	}
	bad(t.Audience == "", "serviceAccountTokenAudience is empty; the token is for the one that it names")
	bad(t.CacheType != PerToken && t.CacheType != PerServiceAccount, fmt.Sprintf("cacheType is %q; it is %s or %s", t.CacheType, PerToken, PerServiceAccount))
	bad(t.Require == nil, "requireServiceAccount is missing; it is true or false")
	bad(len(t.RequiredKeys) > 0 && (t.Require == nil || !*t.Require), "requiredServiceAccountAnnotationKeys needs requireServiceAccount: true")
	seen := map[string]bool{}
	for _, k := range slices.Concat(t.RequiredKeys, t.OptionalKeys) {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(k)) {
			bad(true, fmt.Sprintf("requiredServiceAccountAnnotationKeys, optionalServiceAccountAnnotationKeys: %q: %s", k, problem))
		}
		bad(seen[k], fmt.Sprintf("requiredServiceAccountAnnotationKeys, optionalServiceAccountAnnotationKeys: %q is there twice", k))
		seen[k] = true
	}
	return out
}
