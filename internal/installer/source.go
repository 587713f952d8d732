package installer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/stage"
)

// Source is a payload on the disk of the installer, with what was set about it.
type Source struct {
	// Dir is the folder with the manifest and the files.
	Dir string
	// Settings may be nil.
	Settings *payload.InstallSettings
}

// job is a payload made out for this node.
type job struct {
	payload *payload.RuntimePayload
	stager  stage.Stager
	configs []payload.Config
	release journal.Release
	// One of the two is filled.
	containerd []containerd.Handler
	crio       []crio.Handler
}

// prepare makes a payload out for this node. It touches nothing.
func (i *Installer) prepare(s Source, systemdCgroup bool) (*job, error) {
	p, sum, err := stage.ReadManifest(s.Dir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(p.Architectures, i.arch) {
		return nil, fault.New(payload.PayloadInvalid, "payload %s %s is for %s, and this node is %s", p.Type, p.Version, strings.Join(p.Architectures, " and "), i.arch)
	}
	set := payload.InstallSettings{}
	if s.Settings != nil {
		set = *s.Settings
	}
	if err := meant(p, set.Manifest); err != nil {
		return nil, err
	}
	if errs := set.CheckAgainst(p, nil); len(errs) > 0 {
		return nil, fault.New(payload.ConfigurationProblem, "settings do not fit the payload %s %s: %w", p.Type, p.Version, errs.ToAggregate())
	}
	base := filepath.Join(i.binaryPath, p.Type)
	j := &job{payload: p, stager: stage.Stager{From: s.Dir, Base: i.real(base), Payload: p, Sum: sum, Arch: i.arch}}
	j.release = journal.Release{Version: p.Version, Manifest: sum, Dir: filepath.Join(base, payload.Folder(p.Version, sum))}
	j.config(base, set)
	if err := j.handlers(i.dist.Runtime, set.Handlers, systemdCgroup); err != nil {
		return nil, err
	}
	return j, j.hash()
}

// meant refuses a payload for which the settings were not made: what would be installed
// is another release than the one that is told of in the cluster.
func meant(p *payload.RuntimePayload, digest string) error {
	is, err := p.Digest()
	if err != nil || digest == "" || digest == is {
		return err
	}
	return fault.New(payload.PayloadInvalid, "the image has another payload.json than RuntimePayload %s; its own is of %s %s: apply the yaml that make images wrote beside the image, which has both", p.Type, p.Type, p.Version)
}

// config fills in the configs and the folder that their content names.
func (j *job) config(base string, set payload.InstallSettings) {
	if len(j.payload.Configs) == 0 {
		return
	}
	for _, c := range j.payload.Configs {
		for _, other := range set.Configs {
			if other.Path == c.Path {
				c = other
			}
		}
		j.configs = append(j.configs, c)
	}
	j.release.Config = filepath.Join(base, payload.ConfigFolder(j.release.Dir, j.configs))
	for n := range j.configs {
		j.configs[n].Content = j.fill(j.configs[n].Content)
	}
}

// fill puts paths in the place of placeholders.
func (j *job) fill(text string) string {
	return strings.NewReplacer(payload.PayloadDir, j.release.Dir, payload.ConfigDir, j.release.Config).Replace(text)
}

// handlers makes out those that are wanted, with absolute paths.
func (j *job) handlers(runtime string, wanted []string, systemdCgroup bool) error {
	for _, h := range j.payload.Handlers {
		if len(wanted) > 0 && !slices.Contains(wanted, h.Name) {
			continue
		}
		switch {
		case runtime == "containerd" && h.Containerd != nil:
			j.containerd = append(j.containerd, containerd.Handler{Name: h.Name, ContainerdHandler: j.forContainerd(*h.Containerd, systemdCgroup)})
		case runtime == "crio" && h.CRIO != nil:
			c := *h.CRIO
			c.RuntimePath = filepath.Join(j.release.Dir, c.RuntimePath)
			c.RuntimeConfigPath = j.fill(c.RuntimeConfigPath)
			j.crio = append(j.crio, crio.Handler{Name: h.Name, CRIOHandler: c})
		default:
			return fault.New(payload.UnsupportedNode, "handler %s of payload %s %s does not say how %s runs it; name others in the settings, or use another payload", h.Name, j.payload.Type, j.payload.Version, runtime)
		}
		j.release.Handlers = append(j.release.Handlers, h.Name)
	}
	return nil
}

func (j *job) forContainerd(c payload.ContainerdHandler, systemdCgroup bool) payload.ContainerdHandler {
	if c.RuntimePath != "" {
		c.RuntimePath = filepath.Join(j.release.Dir, c.RuntimePath)
	}
	var o payload.ContainerdOptions
	if c.Options != nil {
		o = *c.Options
	}
	o.ConfigPath, o.BinaryName = j.fill(o.ConfigPath), j.fill(o.BinaryName)
	// A shim of runc's kind has to have its cgroups where the kubelet's are.
	if c.RuntimeType == "io.containerd.runc.v2" && o.SystemdCgroup == nil && systemdCgroup {
		o.SystemdCgroup = &systemdCgroup
	}
	if o != (payload.ContainerdOptions{}) {
		c.Options = &o
	}
	return c
}

// hash is of all that decides what ends up in the runtime's configuration.
func (j *job) hash() error {
	var render any = j.containerd
	if len(j.crio) > 0 {
		render = j.crio
	}
	data, err := json.Marshal(render)
	if err != nil {
		return fmt.Errorf("render the handlers of %s: %w", j.payload.Type, err)
	}
	j.release.Render = data
	sum := sha256.New()
	_, err = fmt.Fprintf(sum, "%s\n%s\n%s\n%s\n", j.release.Manifest, j.release.Dir, j.release.Config, data)
	j.release.Hash = hex.EncodeToString(sum.Sum(nil))
	return err
}

// rendered reads the handlers of a release back.
func (i *Installer) rendered(r *journal.Release) (*job, error) {
	j := &job{}
	if r == nil {
		return j, nil
	}
	var into any = &j.containerd
	if i.dist.Runtime == "crio" {
		into = &j.crio
	}
	if err := json.Unmarshal(r.Render, into); err != nil {
		return nil, fmt.Errorf("read the handlers of version %s in the journal: %w", r.Version, err)
	}
	return j, nil
}
