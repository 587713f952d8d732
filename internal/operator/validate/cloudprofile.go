package validate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"fairlead.run/api/v1alpha1"
)

// The kinds of profiles that a shoot can name.
const (
	KindCloudProfile           = "CloudProfile"
	KindNamespacedCloudProfile = "NamespacedCloudProfile"
)

// ProfileRef names the profile of a shoot. Namespace is that of the shoot for a
// NamespacedCloudProfile, and otherwise "".
type ProfileRef struct{ Kind, Namespace, Name string }

// String is as people write it.
func (r ProfileRef) String() string { return r.Kind + " " + r.Name }

// CloudProfile is what a landscape of Gardener's says of its machine images and machines,
// as far as container runtimes are concerned.
type CloudProfile struct {
	Images   []ProfileImage   `json:"machineImages"`
	Machines []ProfileMachine `json:"machineTypes"`
	// Ref is its name, and Read when it was read, and so which versions have expired.
	Ref  ProfileRef `json:"-"`
	Read time.Time  `json:"-"`
}

// ProfileImage is an operating system with its versions.
type ProfileImage struct {
	Name     string           `json:"name"`
	Versions []ProfileVersion `json:"versions"`
}

// ProfileVersion says what one version of an image has.
type ProfileVersion struct {
	Version       string       `json:"version"`
	Expires       *time.Time   `json:"expirationDate"`
	Architectures []string     `json:"architectures"`
	CRI           []ProfileCRI `json:"cri"`
}

// ProfileCRI is a CRI runtime with what can be installed below it.
type ProfileCRI struct {
	Name              v1alpha1.CRIName `json:"name"`
	ContainerRuntimes []struct {
		Type string `json:"type"`
	} `json:"containerRuntimes"`
}

// ReadProfile reads a CloudProfile, or what Gardener has made of a
// NamespacedCloudProfile and its parent. It is nil if Gardener has not done that yet.
func ReadProfile(ref ProfileRef, object []byte, now time.Time) (*CloudProfile, error) {
	var read struct {
		Spec   *CloudProfile `json:"spec"`
		Status struct {
			Merged *CloudProfile `json:"cloudProfileSpec"`
		} `json:"status"`
	}
	if err := json.Unmarshal(object, &read); err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	p := read.Spec
	if ref.Kind == KindNamespacedCloudProfile {
		p = read.Status.Merged
	}
	if p != nil {
		p.Ref, p.Read = ref, now
	}
	return p, nil
}

// Profile names the profile of a shoot in a namespace. Without one its name is "", which
// Gardener refuses by itself.
func (s *Shoot) Profile(namespace string) ProfileRef {
	r := ProfileRef{Kind: KindCloudProfile, Name: s.Spec.CloudProfileName}
	if p := s.Spec.CloudProfile; p != nil {
		r.Name = p.Name
		if p.Kind != "" {
			r.Kind = p.Kind
		}
	}
	if r.Kind == KindNamespacedCloudProfile {
		r.Namespace = namespace
	}
	return r
}

// asking are the worker groups that have runtimes, and that are new or ask for something
// else of their image than before, by their place. What Gardener has taken and nobody
// changes is not held up by a profile that has changed since.
func (s *Shoot) asking(old *Shoot) []int {
	return slices.DeleteFunc(s.changed(old, sameDemand), func(i int) bool { return s.Spec.Provider.Workers[i].Machine.Image == nil })
}

// changed are the worker groups that have runtimes, and that are new or not the same as
// before, by their place.
func (s *Shoot) changed(old *Shoot, same func(now, was *Worker) bool) []int {
	had := map[string]*Worker{}
	if old != nil && old.Profile("") == s.Profile("") {
		for i := range old.Spec.Provider.Workers {
			w := &old.Spec.Provider.Workers[i]
			had[w.Name] = w
		}
	}
	var out []int
	for i := range s.Spec.Provider.Workers {
		w := &s.Spec.Provider.Workers[i]
		if w.CRI == nil || len(w.CRI.ContainerRuntimes) == 0 {
			continue
		}
		if was := had[w.Name]; was == nil || !same(w, was) {
			out = append(out, i)
		}
	}
	return out
}

// sameDemand says that two groups ask the same of their image.
func sameDemand(a, b *Worker) bool {
	return equality.Semantic.DeepEqual(a.CRI, b.CRI) && equality.Semantic.DeepEqual(a.Machine.Image, b.Machine.Image) && a.Machine.Architecture == b.Machine.Architecture
}

// AsksProfile says whether a shoot has anything that its profile decides. Old is the one
// before, or nil.
func (s *Shoot) AsksProfile(old *Shoot) bool {
	return s.Metadata.DeletionTimestamp == nil && len(s.changed(old, func(now, was *Worker) bool {
		return now.Machine.Type == was.Machine.Type && sameDemand(now, was)
	})) > 0
}

// ShootOnProfile says whether the images of a shoot's worker groups take the runtimes
// that they ask for, by the profile. Without that it warns: Gardener refuses a shoot
// whose profile is not there by itself.
func ShootOnProfile(s, old *Shoot, ref ProfileRef, p *CloudProfile) Result {
	var r Result
	if s.Metadata.DeletionTimestamp != nil || len(s.asking(old)) == 0 {
		return r
	}
	if p == nil {
		r.warn("spec.cloudProfile: there is no %s, or Gardener has not read it yet, so that nobody looked whether its machine images take these container runtimes", ref)
		return r
	}
	for _, i := range s.asking(old) {
		d := demand{ref: ref, profile: p, worker: &s.Spec.Provider.Workers[i], at: workersAt.Index(i)}
		d.check(&r)
	}
	return r
}

// demand is what one worker group asks of its profile.
type demand struct {
	ref     ProfileRef
	profile *CloudProfile
	worker  *Worker
	at      *field.Path
}

func (d *demand) check(r *Result) {
	image, cri := d.worker.Machine.Image, d.worker.CRI
	if cri.Name != v1alpha1.CRIContainerd {
		return // it has to be that first, which others say
	}
	candidates := d.profile.versions(image.Name, image.Version)
	if len(candidates) == 0 {
		return // Gardener knows which images there are, and says so
	}
	chosen := strings.TrimSpace("machine image " + image.Name + " " + image.Version)
	if !slices.ContainsFunc(candidates, func(v ProfileVersion) bool { return v.below(cri.Name) != nil }) {
		r.add(field.Invalid(d.at.Child("cri", "name"), cri.Name, fmt.Sprintf("%s does not have it for %s; %s", d.ref, chosen, d.instead())))
		return
	}
	for i := range cri.ContainerRuntimes {
		typ := cri.ContainerRuntimes[i].Type
		if typ == "" || slices.ContainsFunc(candidates, func(v ProfileVersion) bool { return v.takes(cri.Name, typ) }) {
			continue
		}
		r.add(field.Invalid(d.at.Child("cri", "containerRuntimes").Index(i).Child("type"), typ,
			fmt.Sprintf("%s does not have it below %s for %s; %s", d.ref, cri.Name, chosen, d.instead())))
	}
}

// instead says which images take all that the group asks for.
func (d *demand) instead() string {
	image := d.worker.Machine.Image.Name
	if fitting := d.fitting(image); len(fitting) > 0 {
		return "set machine.image.version to one that has all of it: " + shortened(fitting)
	}
	if others := d.others(); len(others) > 0 {
		return "no version of " + image + " has all of it; set machine.image to one that has: " + shortened(others)
	}
	return "no machine image there has all of " + strings.Join(d.types(), ", ") + " below " + string(d.worker.CRI.Name) + "; take it off this group, or have who runs the landscape add it to spec.machineImages[].versions[].cri[]"
}

// others are images beside the group's own that take all that it asks for, each with its
// newest version.
func (d *demand) others() (out []string) {
	for _, i := range d.profile.Images {
		if fitting := d.fitting(i.Name); i.Name != d.worker.Machine.Image.Name && len(fitting) > 0 {
			out = append(out, i.Name+" "+fitting[0])
		}
	}
	return out
}

// images is what to do about a group whose image takes no runtimes at all.
func (p *CloudProfile) images(w *Worker) string {
	if p == nil || w.Machine.Image == nil {
		return "choose one of " + supported(v1alpha1.CRIContainerd)
	}
	d := demand{profile: p, worker: w}
	if others := d.others(); len(others) > 0 {
		return "set machine.image to one that has all that this group asks for: " + shortened(others)
	}
	return "take containerRuntimes off this group, as no other machine image there has all of " + strings.Join(d.types(), ", ")
}

func (d *demand) types() (out []string) {
	for _, c := range d.worker.CRI.ContainerRuntimes {
		out = append(out, c.Type)
	}
	return out
}

// fitting are the versions of an image that have all that the group asks for, the
// newest first. What is no longer offered is left out, and so is an image that is refused
// whatever a profile says of it.
func (d *demand) fitting(image string) (out []string) {
	if images[image].refused != "" {
		return nil
	}
	arch := d.worker.architecture()
	for _, v := range d.profile.versions(image, "") {
		gone := v.Expires != nil && v.Expires.Before(d.profile.Read)
		other := len(v.Architectures) > 0 && !slices.Contains(v.Architectures, arch)
		lacks := slices.ContainsFunc(d.types(), func(typ string) bool { return !v.takes(v1alpha1.CRIContainerd, typ) })
		if !gone && !other && !lacks {
			out = append(out, v.Version)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return compareVersions(b, a) })
	return out
}

func compareVersions(a, b string) int {
	x, errX := version.ParseGeneric(a)
	y, errY := version.ParseGeneric(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	switch {
	case x.LessThan(y):
		return -1
	case y.LessThan(x):
		return 1
	}
	return 0
}

// shortened is the first few of a list.
func shortened(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// versions are those of an image that a text stands for: the one of that name, or those
// that begin with it, of which Gardener chooses. Of no text it chooses among all.
func (p *CloudProfile) versions(image, text string) (out []ProfileVersion) {
	for _, i := range p.Images {
		if i.Name != image {
			continue
		}
		for _, v := range i.Versions {
			if v.Version == text {
				return []ProfileVersion{v}
			}
			if text == "" || strings.HasPrefix(v.Version, text+".") {
				out = append(out, v)
			}
		}
	}
	return out
}

// below is what a version has for a CRI runtime, or nil. One that does not say has
// containerd and nothing below it, as Gardener takes it.
func (v ProfileVersion) below(cri v1alpha1.CRIName) *ProfileCRI {
	for i := range v.CRI {
		if v.CRI[i].Name == cri {
			return &v.CRI[i]
		}
	}
	if len(v.CRI) == 0 && cri == v1alpha1.CRIContainerd {
		return &ProfileCRI{Name: cri}
	}
	return nil
}

// takes says whether a type can be installed below a CRI runtime. Gardener compares types
// letter by letter, and knows no aliases.
func (v ProfileVersion) takes(cri v1alpha1.CRIName, typ string) bool {
	c := v.below(cri)
	if c == nil {
		return false
	}
	for _, r := range c.ContainerRuntimes {
		if r.Type == typ {
			return true
		}
	}
	return false
}
