package plugin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
)

// longestConfig bounds a providerConfig, in bytes.
const longestConfig = 64 << 10

// Decode reads a providerConfig strictly: a field that is not in into, or is there
// twice, is a fault, and allowed says what there is.
func Decode(raw []byte, into any, allowed []string, at *field.Path) field.ErrorList {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if len(raw) > longestConfig {
		return field.ErrorList{field.TooLong(at, "", longestConfig)}
	}
	strict, err := json.UnmarshalStrict(raw, into)
	if err != nil {
		return field.ErrorList{field.Invalid(at, "", fmt.Sprintf("%v; the fields are %s", err, strings.Join(allowed, ", ")))}
	}
	var faults field.ErrorList
	for _, e := range strict {
		faults = append(faults, field.Invalid(at, "", fmt.Sprintf("%v; the fields are %s", e, strings.Join(allowed, ", "))))
	}
	return faults
}

// Kind is what a providerConfig of a type may call itself.
type Kind struct {
	Name     string
	Versions []string
}

// Check says whether apiVersion and kind are those. Both may be missing.
func (k Kind) Check(version, name string, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	if version != "" && !slices.Contains(k.Versions, version) {
		faults = append(faults, field.NotSupported(at.Child("apiVersion"), version, k.Versions))
	}
	if name != "" && name != k.Name {
		faults = append(faults, field.NotSupported(at.Child("kind"), name, []string{k.Name}))
	}
	return faults
}

// Resources reads quantities of cpu and memory.
func Resources(in map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for name, text := range in {
		q, err := parseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

// plainQuantity is what is read as a quantity: 1e-1000000000 takes minutes.
var plainQuantity = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,9})?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$`)

func parseQuantity(text string) (resource.Quantity, error) {
	if !plainQuantity.MatchString(text) {
		return resource.Quantity{}, fmt.Errorf("%.64q is no amount; give one as in 250m or 160Mi", text)
	}
	return resource.ParseQuantity(text)
}

// CheckOverhead reads an overhead that a user gives.
func CheckOverhead(in map[string]string, at *field.Path) (corev1.ResourceList, field.ErrorList) {
	var faults field.ErrorList
	out := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if name != "cpu" && name != "memory" {
			faults = append(faults, field.NotSupported(at.Key(name), name, []string{"cpu", "memory"}))
			continue
		}
		q, err := parseQuantity(in[name])
		if err != nil {
			faults = append(faults, field.Invalid(at.Key(name), in[name], "give an amount as in 250m or 160Mi"))
			continue
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, faults
}

// FlagKind is what a flag takes.
type FlagKind int

// The kinds of flags.
const (
	FlagBool FlagKind = iota
	FlagNumber
	FlagText
)

// Flag is a flag of a runtime that users may set.
type Flag struct {
	Kind FlagKind
	Only []string // what it takes, if not everything of its kind
}

// CheckFlags says which flags are not known, and which have a value they do not take.
func CheckFlags(set map[string]string, known map[string]Flag, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(set)) {
		f, ok := known[name]
		if !ok {
			faults = append(faults, field.NotSupported(at.Key(name), name, slices.Sorted(maps.Keys(known))))
			continue
		}
		if why := f.wrong(set[name]); why != "" {
			faults = append(faults, field.Invalid(at.Key(name), set[name], why))
		}
	}
	return faults
}

func (f Flag) wrong(value string) string {
	_, notNumber := strconv.ParseUint(value, 10, 31)
	switch {
	case len(f.Only) > 0 && !slices.Contains(f.Only, value):
		return "give one of " + strings.Join(f.Only, ", ")
	case f.Kind == FlagBool && value != "true" && value != "false":
		return `give "true" or "false"`
	case f.Kind == FlagNumber && notNumber != nil:
		return "give a number that is not negative"
	case f.Kind == FlagText && (len(value) > 256 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })):
		return "give one line of at most 256 characters"
	}
	return ""
}
