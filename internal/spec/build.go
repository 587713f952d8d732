package spec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/hostile"
	"fairlead.run/internal/spec/origin"
)

// defaultOCI is the ociVersion for a handler that names none.
const defaultOCI = "1.1.0"

// build is one config.json in the making. The steps share nothing else.
type build struct {
	*Builder
	req        pod.BundleRequest
	spec       *specs.Spec
	user       pod.User
	stopSignal string
	warnings   []string
}

// step fills one part of the spec in.
type step func(*build, context.Context) error

// containerSteps make the spec of a container. The order counts in few places:
// seccomp's default depends on the capabilities, mounts on the labels, and the
// working directory is made after all that can be refused.
var containerSteps = []step{
	(*build).check,
	(*build).process,
	(*build).environment,
	(*build).signal,
	(*build).identity,
	(*build).capabilities,
	(*build).limits,
	(*build).oomScore,
	(*build).namespaces,
	(*build).cgroup,
	(*build).resources,
	(*build).devices,
	(*build).paths,
	(*build).seccomp,
	(*build).appArmor,
	(*build).selinux,
	(*build).annotations,
	(*build).mounts,
	(*build).workingDir,
	(*build).edit,
}

func (b *build) run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s(b, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) newBuild(req pod.BundleRequest) *build {
	version := req.Handler.OCI
	if version == "" {
		version = defaultOCI
	}
	return &build{Builder: b, req: req, spec: &specs.Spec{
		Version: version,
		Process: &specs.Process{Cwd: "/"},
		Root:    &specs.Root{Path: req.Rootfs},
		Linux:   &specs.Linux{Resources: &specs.LinuxResources{}},
	}}
}

// pod, container and security are shorter names of what is asked for most.
func (b *build) pod() *pod.Config                { return &b.req.Record.Config }
func (b *build) container() *pod.ContainerConfig { return &b.req.Container.Config }
func (b *build) security() *pod.Security         { return &b.req.Container.Config.Security }

func (b *build) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}

// invalid is an error about a field of the request.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s %s: %w", field, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// unsupported is an error about a field that cannot be honoured here.
func unsupported(field, format string, args ...any) error {
	return fmt.Errorf("%s %s: %w", field, fmt.Sprintf(format, args...), errdefs.ErrUnimplemented)
}

// check refuses what no later step looks at.
func (b *build) check(context.Context) error {
	s := b.security()
	if s.Privileged && !b.pod().Security.Privileged {
		return invalid("linux.security_context.privileged", "is set, but the pod's own linux.security_context.privileged is not; set it there too")
	}
	if !filepath.IsAbs(b.req.Rootfs) {
		return fmt.Errorf("root file system %q is not an absolute path: %w", b.req.Rootfs, errdefs.ErrInternal)
	}
	if err := hostile.Rootfs(b.req.Rootfs, kernelMounts); err != nil {
		return err
	}
	b.spec.Root.Readonly = s.ReadOnlyRootfs
	b.spec.Process.NoNewPrivileges = s.NoNewPrivileges
	b.spec.Process.Terminal = b.container().Process.TTY
	return nil
}

// edit lets others have the last word. What they adjusted in the container has
// to get into the spec, and stay whose it is.
func (b *build) edit(ctx context.Context) error {
	before := b.req.Container.Adjusted
	for _, e := range b.cfg.Edits {
		if err := e.Edit(ctx, &b.req, b.spec); err != nil {
			return err
		}
	}
	if b.req.Container.Adjusted == before {
		return nil
	}
	origin.OfContainer(b.spec.Annotations, b.req.Record, b.req.Container)
	return errors.Join(b.resources(ctx), b.oomScore(ctx))
}

func (b *build) limits(context.Context) error {
	for _, l := range b.rlimits {
		b.spec.Process.Rlimits = append(b.spec.Process.Rlimits, specs.POSIXRlimit{Type: l.name, Soft: l.Soft, Hard: l.Hard})
	}
	return nil
}

// paths masks and protects what the caller names. Nothing named means nothing
// masked: over the wire, "unmasked" and "not said" look the same, and kubelet
// names the usual paths itself.
func (b *build) paths(context.Context) error {
	s := b.security()
	if s.Privileged {
		return nil
	}
	for field, list := range map[string][]string{"masked_paths": s.MaskedPaths, "readonly_paths": s.ReadOnlyPaths} {
		for i, p := range list {
			if !path.IsAbs(p) || strings.ContainsRune(p, 0) {
				return invalid(fmt.Sprintf("linux.security_context.%s[%d]", field, i), "%q is not an absolute path", p)
			}
		}
	}
	b.spec.Linux.MaskedPaths = slices.Clone(s.MaskedPaths)
	b.spec.Linux.ReadonlyPaths = slices.Clone(s.ReadOnlyPaths)
	return nil
}

// hostname is the name that the pod's processes see.
func (b *build) hostname() (string, error) {
	if h := b.pod().Hostname; h != "" && !b.pod().HostNetwork() {
		return h, nil
	}
	h, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host's name: %w", err)
	}
	return h, nil
}
