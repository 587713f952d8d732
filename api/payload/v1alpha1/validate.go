package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	version   = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+-]{0,62}$`)
	digest    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	minor     = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}$`)
	mode      = regexp.MustCompile(`^0[0-7]{3}$`)
	crioShim  = regexp.MustCompile(`^containerd-shim-[0-9A-Za-z+-]+-v2$`)
	shimType  = regexp.MustCompile(`^[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)+$`)
	word      = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,62}$`)
	archs     = []string{"386", "amd64", "arm", "arm64", "loong64", "mips64le", "ppc64le", "riscv64", "s390x"}
	resources = []string{"cpu", "memory"}
)

// The most that a payload may have; a release of any runtime has a hundredth.
const (
	maxFiles    = 4096
	maxFileSize = 4 << 30
	maxHandlers = 64
	maxConfig   = 64 << 10
)

// MaxType is how long the name of a type may be. Objects in a seed of Gardener's have it
// in their names, which must not be cut short: rights go by them.
const MaxType = 25

// ReservedPrefix is what names of versions may not begin with: configs and the
// installer's own folders do.
const ReservedPrefix = "etc-"

// hashed is how many letters of a hash are in the name of a folder.
const hashed = 12

// Folder names the folder of a payload by its version and a hash of what it is, in hex:
// a version that was built anew is another one for the pods that are on the first.
func Folder(version, sum string) string { return version + "-" + sum[:min(hashed, len(sum))] }

// ConfigFolder names the folder of configs for the payload in a folder by what is in
// them, placeholders and all, so that it never changes.
func ConfigFolder(dir string, all []Config) string {
	sum := sha256.New()
	for _, c := range all {
		_, _ = fmt.Fprintf(sum, "%q %q %q\n", dir, c.Path, c.Content)
	}
	return ReservedPrefix + hex.EncodeToString(sum.Sum(nil))[:hashed]
}

// Validate says what is wrong with the payload, by paths below at.
func (p *RuntimePayload) Validate(at *field.Path) field.ErrorList {
	errs := kind(at, p.APIVersion, p.Kind, KindPayload)
	if !label.MatchString(p.Type) || len(p.Type) > MaxType {
		errs = append(errs, field.Invalid(at.Child("type"), p.Type, fmt.Sprintf("use lower case letters, digits and -, %d at most, as in gvisor", MaxType)))
	}
	if !version.MatchString(p.Version) || strings.HasPrefix(p.Version, ReservedPrefix) {
		errs = append(errs, field.Invalid(at.Child("version"), p.Version, "begin with a letter or digit, use letters, digits and . _ + -, 63 at most, and do not begin with "+ReservedPrefix))
	}
	if p.OS != "linux" {
		errs = append(errs, field.NotSupported(at.Child("os"), p.OS, []string{"linux"}))
	}
	errs = append(errs, p.architectures(at.Child("architectures"))...)
	errs = append(errs, p.files(at.Child("files"))...)
	errs = append(errs, configs(at.Child("configs"), p.Configs)...)
	errs = append(errs, p.handlers(at.Child("handlers"))...)
	errs = append(errs, p.checks(at.Child("checks"))...)
	for i, d := range p.Devices {
		if !strings.HasPrefix(d, "/dev/") || path.Clean(d) != d {
			errs = append(errs, field.Invalid(at.Child("devices").Index(i), d, "name a device by its absolute path, as in /dev/kvm"))
		}
	}
	return append(errs, overhead(at.Child("overhead"), p.Overhead)...)
}

func kind(at *field.Path, version, got, want string) field.ErrorList {
	var errs field.ErrorList
	if version != APIVersion {
		errs = append(errs, field.NotSupported(at.Child("apiVersion"), version, []string{APIVersion}))
	}
	if got != want {
		errs = append(errs, field.NotSupported(at.Child("kind"), got, []string{want}))
	}
	return errs
}

func (p *RuntimePayload) architectures(at *field.Path) field.ErrorList {
	if len(p.Architectures) == 0 {
		return field.ErrorList{field.Required(at, "name at least one, as in amd64")}
	}
	var errs field.ErrorList
	for i, a := range p.Architectures {
		if !slices.Contains(archs, a) {
			errs = append(errs, field.NotSupported(at.Index(i), a, archs))
		}
		if slices.Contains(p.Architectures[:i], a) {
			errs = append(errs, field.Duplicate(at.Index(i), a))
		}
	}
	return errs
}

func (p *RuntimePayload) files(at *field.Path) field.ErrorList {
	if len(p.Files) == 0 {
		return field.ErrorList{field.Required(at, "a payload has at least one file")}
	}
	if len(p.Files) > maxFiles {
		return field.ErrorList{field.TooMany(at, len(p.Files), maxFiles)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range p.Files {
		f := &p.Files[i]
		here := at.Index(i)
		errs = append(errs, f.validate(here)...)
		if f.Arch != "" && !slices.Contains(p.Architectures, f.Arch) {
			errs = append(errs, field.NotSupported(here.Child("arch"), f.Arch, p.Architectures))
		}
		for _, a := range f.of(p.Architectures) {
			if seen[a+"/"+f.Path] {
				errs = append(errs, field.Duplicate(here.Child("path"), f.Path))
				break
			}
			seen[a+"/"+f.Path] = true
		}
	}
	return append(errs, nested(at, p.Files)...)
}

// of are the architectures that a file is for.
func (f *File) of(all []string) []string {
	if f.Arch == "" {
		return all
	}
	return []string{f.Arch}
}

func (f *File) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !inside(f.Path) || f.Path == ManifestName || strings.HasPrefix(f.Path, ".") {
		errs = append(errs, field.Invalid(at.Child("path"), f.Path, "use a clean relative path without .. that does not begin with a dot and is not "+ManifestName))
	}
	if f.Source != "" && !inside(f.Source) {
		errs = append(errs, field.Invalid(at.Child("source"), f.Source, "use a clean relative path without .."))
	}
	if !mode.MatchString(f.Mode) {
		errs = append(errs, field.Invalid(at.Child("mode"), f.Mode, "use four octal digits that begin with 0, as in 0755"))
	} else if strings.ContainsRune("2367", rune(f.Mode[2])) || strings.ContainsRune("2367", rune(f.Mode[3])) {
		errs = append(errs, field.Invalid(at.Child("mode"), f.Mode, "nobody but the owner may write to a program that root runs"))
	}
	if f.Size < 0 || f.Size > maxFileSize {
		errs = append(errs, field.Invalid(at.Child("size"), f.Size, "use bytes, 4 GiB at most"))
	}
	if !digest.MatchString(f.SHA256) {
		errs = append(errs, field.Invalid(at.Child("sha256"), f.SHA256, "use 64 lower case hexadecimal digits"))
	}
	return errs
}

// nested finds files that are folders of others.
func nested(at *field.Path, files []File) field.ErrorList {
	all := map[string]bool{}
	for i := range files {
		all[files[i].Path] = true
	}
	var errs field.ErrorList
	for i := range files {
		for dir := path.Dir(files[i].Path); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if all[dir] {
				errs = append(errs, field.Invalid(at.Index(i).Child("path"), files[i].Path, dir+" is a file, and cannot be a folder, too"))
				break
			}
		}
	}
	return errs
}

// inside says whether a path is clean and stays below where it begins.
func inside(p string) bool {
	return p != "" && p != "." && len(p) <= 1024 && path.Clean(p) == p && !path.IsAbs(p) && p != ".." && !strings.HasPrefix(p, "../") && !strings.ContainsFunc(p, control)
}

func control(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }

func configs(at *field.Path, all []Config) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range all {
		if !inside(c.Path) || strings.Contains(c.Path, "/") || strings.HasPrefix(c.Path, ".") {
			errs = append(errs, field.Invalid(at.Index(i).Child("path"), c.Path, "use the name of a file, without folders"))
		}
		if seen[c.Path] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("path"), c.Path))
		}
		seen[c.Path] = true
		if len(c.Content) > maxConfig {
			errs = append(errs, field.TooLong(at.Index(i).Child("content"), "", maxConfig))
		}
	}
	return errs
}

func (p *RuntimePayload) handlers(at *field.Path) field.ErrorList {
	if len(p.Handlers) == 0 {
		return field.ErrorList{field.Required(at, "a runtime has at least one handler")}
	}
	if len(p.Handlers) > maxHandlers {
		return field.ErrorList{field.TooMany(at, len(p.Handlers), maxHandlers)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range p.Handlers {
		h, here := &p.Handlers[i], at.Index(i)
		if !label.MatchString(h.Name) {
			errs = append(errs, field.Invalid(here.Child("name"), h.Name, "use lower case letters, digits and -, 63 at most, as in runsc"))
		}
		if h.Name == "runc" || h.Name == "crun" {
			errs = append(errs, field.Forbidden(here.Child("name"), h.Name+" is the node's own handler; choose another name"))
		}
		if seen[h.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), h.Name))
		}
		seen[h.Name] = true
		if h.Containerd == nil && h.CRIO == nil {
			errs = append(errs, field.Required(here, "say how containerd or crio runs it"))
		}
		if h.Containerd != nil {
			errs = append(errs, p.containerd(here.Child("containerd"), h.Containerd)...)
		}
		if h.CRIO != nil {
			errs = append(errs, p.crio(here.Child("crio"), h.CRIO)...)
		}
		errs = append(errs, overhead(here.Child("overhead"), h.Overhead)...)
	}
	return errs
}

func (p *RuntimePayload) containerd(at *field.Path, c *ContainerdHandler) field.ErrorList {
	var errs field.ErrorList
	if !shimType.MatchString(c.RuntimeType) {
		errs = append(errs, field.Invalid(at.Child("runtimeType"), c.RuntimeType, "name a shim, as in io.containerd.runsc.v1"))
	}
	if c.MinVersion != "" && !minor.MatchString(c.MinVersion) {
		errs = append(errs, field.Invalid(at.Child("minVersion"), c.MinVersion, "use two numbers, as in 1.7"))
	}
	if c.RuntimePath != "" {
		errs = append(errs, p.program(at.Child("runtimePath"), c.RuntimePath)...)
	}
	if c.Snapshotter != "" && !word.MatchString(c.Snapshotter) {
		errs = append(errs, field.Invalid(at.Child("snapshotter"), c.Snapshotter, "name a snapshotter, as in overlayfs"))
	}
	if c.Sandboxer != "" && c.Sandboxer != "podsandbox" && c.Sandboxer != "shim" {
		errs = append(errs, field.NotSupported(at.Child("sandboxer"), c.Sandboxer, []string{"podsandbox", "shim"}))
	}
	errs = append(errs, patterns(at.Child("podAnnotations"), c.PodAnnotations)...)
	errs = append(errs, patterns(at.Child("containerAnnotations"), c.ContainerAnnotations)...)
	if o := c.Options; o != nil {
		here := at.Child("options")
		errs = append(errs, plain(here.Child("typeUrl"), o.TypeURL)...)
		errs = append(errs, place(here.Child("configPath"), o.ConfigPath)...)
		errs = append(errs, place(here.Child("binaryName"), o.BinaryName)...)
	}
	return errs
}

func (p *RuntimePayload) crio(at *field.Path, c *CRIOHandler) field.ErrorList {
	var errs field.ErrorList
	if c.RuntimeType != "oci" && c.RuntimeType != "vm" {
		errs = append(errs, field.NotSupported(at.Child("runtimeType"), c.RuntimeType, []string{"oci", "vm"}))
	}
	errs = append(errs, p.program(at.Child("runtimePath"), c.RuntimePath)...)
	errs = append(errs, place(at.Child("runtimeConfigPath"), c.RuntimeConfigPath)...)
	// CRI-O leaves out handlers that break its rules, and says so in its log alone.
	if c.RuntimeType == "vm" && !crioShim.MatchString(path.Base(c.RuntimePath)) {
		errs = append(errs, field.Invalid(at.Child("runtimePath"), c.RuntimePath, "CRI-O takes shims that are called containerd-shim-NAME-v2 alone; use oci for a program like runc"))
	}
	if c.RuntimeType == "oci" && c.RuntimeConfigPath != "" {
		errs = append(errs, field.Invalid(at.Child("runtimeConfigPath"), c.RuntimeConfigPath, "CRI-O takes it with vm alone; leave it out"))
	}
	if c.RuntimeRoot != "" && (!path.IsAbs(c.RuntimeRoot) || path.Clean(c.RuntimeRoot) != c.RuntimeRoot || c.RuntimeRoot == "/") {
		errs = append(errs, field.Invalid(at.Child("runtimeRoot"), c.RuntimeRoot, "use a clean absolute path, as in /run/runsc"))
	}
	return append(errs, patterns(at.Child("allowedAnnotations"), c.AllowedAnnotations)...)
}

// program says whether a path is of an executable file, for every architecture.
func (p *RuntimePayload) program(at *field.Path, name string) field.ErrorList {
	have := map[string]bool{}
	for i := range p.Files {
		f := &p.Files[i]
		if f.Path != name {
			continue
		}
		if mode.MatchString(f.Mode) && (f.Mode[1]-'0')&1 == 0 {
			return field.ErrorList{field.Invalid(at, name, "its mode in files has no x, so it cannot be run")}
		}
		for _, a := range f.of(p.Architectures) {
			have[a] = true
		}
	}
	for _, a := range p.Architectures {
		if !have[a] {
			return field.ErrorList{field.Invalid(at, name, "name the path of an entry of files; there is none for "+a)}
		}
	}
	return nil
}

// place is an absolute path, or one that begins with a placeholder.
func place(at *field.Path, p string) field.ErrorList {
	rest := p
	for _, holder := range []string{PayloadDir, ConfigDir} {
		rest = strings.Replace(rest, holder, "/x", 1)
	}
	if p == "" || path.IsAbs(rest) && path.Clean(rest) == rest && !strings.ContainsFunc(p, control) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, p, "use a clean absolute path, or one below "+PayloadDir+" or "+ConfigDir)}
}

func plain(at *field.Path, s string) field.ErrorList {
	if len(s) > 253 || strings.ContainsFunc(s, control) {
		return field.ErrorList{field.Invalid(at, s, "use one line of plain text, 253 characters at most")}
	}
	return nil
}

func patterns(at *field.Path, all []string) field.ErrorList {
	var errs field.ErrorList
	for i, s := range all {
		if s == "" {
			errs = append(errs, field.Required(at.Index(i), "a pattern is not empty"))
		}
		errs = append(errs, plain(at.Index(i), s)...)
	}
	return errs
}

func (p *RuntimePayload) checks(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range p.Checks {
		here := at.Index(i)
		if !word.MatchString(c.Name) {
			errs = append(errs, field.Invalid(here.Child("name"), c.Name, "use letters, digits and . _ -, 63 at most"))
		}
		if len(c.Command) == 0 {
			errs = append(errs, field.Required(here.Child("command"), "name a program of the payload"))
			continue
		}
		errs = append(errs, p.program(here.Child("command").Index(0), c.Command[0])...)
		if c.TimeoutSeconds < 0 || c.TimeoutSeconds > 600 {
			errs = append(errs, field.Invalid(here.Child("timeoutSeconds"), c.TimeoutSeconds, "use 1 to 600 seconds"))
		}
	}
	return errs
}

func overhead(at *field.Path, all map[string]string) field.ErrorList {
	var errs field.ErrorList
	for name, text := range all {
		if !slices.Contains(resources, name) {
			errs = append(errs, field.NotSupported(at.Key(name), name, resources))
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Key(name), text, "use a quantity that is not negative, as in 250m or 160Mi"))
		}
	}
	return errs
}

// Validate says what is wrong with the settings by themselves.
func (s *InstallSettings) Validate(at *field.Path) field.ErrorList {
	return append(kind(at, s.APIVersion, s.Kind, KindSettings), configs(at.Child("configs"), s.Configs)...)
}

// CheckAgainst says what of the settings does not fit a payload.
func (s *InstallSettings) CheckAgainst(p *RuntimePayload, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	var handlers, files []string
	for i := range p.Handlers {
		handlers = append(handlers, p.Handlers[i].Name)
	}
	for i := range p.Configs {
		files = append(files, p.Configs[i].Path)
	}
	for i, h := range s.Handlers {
		if !slices.Contains(handlers, h) {
			errs = append(errs, field.NotSupported(at.Child("handlers").Index(i), h, handlers))
		}
	}
	for i, c := range s.Configs {
		if !slices.Contains(files, c.Path) {
			errs = append(errs, field.NotSupported(at.Child("configs").Index(i).Child("path"), c.Path, files))
		}
	}
	return errs
}
