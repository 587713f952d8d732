package image

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/documents"
	"fairlead.run/internal/image/fault"
	"fairlead.run/internal/image/layer"
	"fairlead.run/internal/image/staging"
)

var errSchema1 = errors.New("it has a docker schema 1 manifest, a format given up in 2017; " +
	"push it again with a current docker, buildah or skopeo")

// firstCause is the error that made the others: those about cancellation are
// consequences.
func firstCause(errs ...error) error {
	var cancelled error
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled):
			cancelled = err
		default:
			return err
		}
	}
	return cancelled
}

// pullSource is where a pull went, for its errors.
type pullSource struct {
	named    reference.Named
	hosts    []string
	wrong    error // what keeps the last host from an answer
	platform string
	root     string
}

func (p pullSource) where() string {
	if len(p.hosts) == 0 {
		return reference.Domain(p.named)
	}
	return strings.Join(p.hosts, " or ")
}

func (p pullSource) fail(cause, kind error, format string, args ...any) error {
	return fault.New(fmt.Sprintf("pull image %s: ", p.named)+fmt.Sprintf(format, args...), kind, cause)
}

// describePull says what went wrong with a pull, where, and what to do.
func describePull(ctx context.Context, err error, src pullSource) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return src.fail(context.Cause(ctx), errdefs.ErrUnavailable, "from %s: %v", src.where(), context.Cause(ctx))
	}
	for _, describe := range []func(error, pullSource) error{describeImage, describeLast, describeTransfer, describeStatus, describeNetwork} {
		if d := describe(err, src); d != nil {
			return d
		}
	}
	return fmt.Errorf("pull image %s: %w", src.named, err)
}

// describeImage is about images that no retry will mend, and full disks.
func describeImage(err error, src pullSource) error {
	var noPlatform *documents.NoPlatformError
	var bad *layer.Error
	text := err.Error()
	switch {
	case errors.Is(err, errSchema1):
		return src.fail(err, errdefs.ErrUnimplemented, "%v", errSchema1)
	case errors.As(err, &noPlatform):
		return src.fail(err, errdefs.ErrNotFound, "no variant for %s: %v", src.platform, noPlatform)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return src.fail(err, errdefs.ErrExhausted, "the disk of %s is full; remove images that are not needed, or enlarge it", src.root)
	case errors.Is(err, syscall.EIO):
		return src.fail(err, errdefs.ErrUnavailable, "the disk of %s fails: %v", src.root, err)
	case errors.Is(err, syscall.EROFS):
		return src.fail(err, errdefs.ErrPrecondition, "the disk of %s is read-only: %v", src.root, err)
	case errors.As(err, &bad) && bad.Full():
		return src.fail(err, errdefs.ErrExhausted, "layer %s: %v", bad.Digest, bad.Err)
	case errors.As(err, &bad) && !errors.Is(err, context.Canceled):
		return src.fail(err, errdefs.ErrInvalidArgument, "layer %s is not a sound archive: %v; the image has to be built and pushed again", bad.Digest, bad.Err)
	case strings.Contains(text, "byte manifest for "): // the resolver's, which calls that not found
		return src.fail(err, errdefs.ErrInvalidArgument, "its manifest is too large, the limit is %d bytes; it has to be built and pushed again", documents.MaxManifest)
	case strings.Contains(text, "wrong diff id"), strings.Contains(text, "layers and diffIDs don't match"):
		return src.fail(err, errdefs.ErrInvalidArgument, "its layers are not those that its configuration names (%s); it has to be built and pushed again", oneLine(text))
	}
	return nil
}

// describeTransfer is about bytes that did not arrive as they should.
func describeTransfer(err error, src pullSource) error {
	text := err.Error()
	var other *staging.DigestError
	switch {
	case errors.As(err, &other):
		return src.fail(err, errdefs.ErrUnavailable, "%s sent other bytes than the digest promises (%v); nothing of it was kept; retry, or mend the registry or the proxy in between",
			src.where(), other)
	case strings.Contains(text, "read past expected size"), strings.Contains(text, "read exceeds expected size"):
		return src.fail(err, errdefs.ErrUnavailable, "%s sent more bytes than the manifest says; nothing of it was kept", src.where())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return src.fail(err, errdefs.ErrUnavailable, "%s broke off the transfer before its end; retry", src.where())
	}
	return nil
}

// describeLast is about a registry whose mirrors do not have the image, while it
// gives no answer itself. The library tells of the mirrors then.
func describeLast(err error, src pullSource) error {
	if src.wrong == nil || !cerrdefs.IsNotFound(err) || strings.Contains(err.Error(), "could not fetch content descriptor") {
		return nil
	}
	src.hosts = src.hosts[len(src.hosts)-1:]
	if d := describeStatus(src.wrong, src); d != nil {
		return d
	}
	return describeNetwork(src.wrong, src)
}

// describeStatus is about answers of a registry.
func describeStatus(err error, src pullSource) error {
	var status remoteerrors.ErrUnexpectedStatus
	code := 0
	if errors.As(err, &status) {
		code = status.StatusCode
	}
	switch {
	case fault.IsOurs(err):
		return fmt.Errorf("pull image %s: %w", src.named, err)
	case errors.Is(err, docker.ErrInvalidAuthorization), code == http.StatusUnauthorized, code == http.StatusForbidden:
		return src.fail(err, errdefs.ErrPrecondition, "%s refuses access: the repository does not exist, or credentials are missing or wrong (an imagePullSecret, or docker login on this node)", src.where())
	case code == http.StatusTooManyRequests:
		return src.fail(err, errdefs.ErrUnavailable, "%s allows no more requests for now (HTTP 429); wait, log in for a higher limit, or set up a mirror", src.where())
	case strings.Contains(err.Error(), "could not fetch content descriptor"):
		return src.fail(err, errdefs.ErrNotFound, "%s has the manifest, but not a part that it names (%s); the image has to be pushed again",
			src.where(), blobOf(err.Error()))
	case cerrdefs.IsNotFound(err), code == http.StatusNotFound:
		return src.fail(err, errdefs.ErrNotFound, "not found on %s; check the name and the tag", src.where())
	case code >= 500:
		return src.fail(err, errdefs.ErrUnavailable, "%s is out of order (HTTP %d); retry later", src.where(), code)
	case code != 0:
		return src.fail(err, errdefs.ErrUnavailable, "%s answered HTTP %d", src.where(), code)
	}
	return nil
}

// blobOf is the last digest in the text.
func blobOf(text string) string {
	i := strings.LastIndex(text, "sha256:")
	if i < 0 {
		return oneLine(text)
	}
	return text[i:min(len(text), i+len("sha256:")+64)]
}

// describeNetwork is about registries that could not be reached.
func describeNetwork(err error, src pullSource) error {
	var (
		dns       *net.DNSError
		op        *net.OpError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		cert      *tls.CertificateVerificationError
		timeout   net.Error
	)
	switch {
	case errors.As(err, &dns):
		return src.fail(err, errdefs.ErrUnavailable, "no address for %s: %v", dns.Name, dns)
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &cert):
		return src.fail(err, errdefs.ErrUnavailable, "the certificate of %s is not trusted: %s; put its authority into certs.d/%s/ca.crt",
			src.where(), oneLine(tail(err.Error(), "tls:")), reference.Domain(src.named))
	case errors.As(err, &op):
		return src.fail(err, errdefs.ErrUnavailable, "cannot reach %s: %v", src.where(), op)
	case errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, context.Canceled):
		return src.fail(err, errdefs.ErrUnavailable, "%s does not answer: %s", src.where(), oneLine(err.Error()))
	}
	return nil
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// tail is the text from the mark on.
func tail(text, mark string) string {
	if i := strings.Index(text, mark); i >= 0 {
		text = text[i:]
	}
	text, _, _ = strings.Cut(text, "\n")
	return strings.TrimSuffix(text, ": failed precondition")
}

// describeImport says what is wrong with an archive.
func describeImport(ctx context.Context, err error, root string) error {
	var bad *layer.Error
	text := err.Error()
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("import image: %w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fmt.Sprintf("import image: the disk of %s is full; remove images that are not needed, or enlarge it", root), errdefs.ErrExhausted, err)
	case errors.As(err, &bad) && bad.Full():
		return fault.New("import image: "+bad.Error(), errdefs.ErrExhausted, err)
	case errors.As(err, &bad):
		return fault.New("import image: "+bad.Error()+"; the archive is damaged", errdefs.ErrInvalidArgument, err)
	case errors.Is(err, errNoArchive), strings.Contains(text, "unrecognized image format"):
		return fault.New("import image: this is neither an OCI layout nor an archive of docker save, plain or compressed by gzip or zstd", errdefs.ErrInvalidArgument, err)
	case errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(text, "invalid tar header"), strings.Contains(text, "gzip: invalid"):
		return fault.New("import image: the archive is damaged or cut short: "+oneLine(text), errdefs.ErrInvalidArgument, err)
	case errors.Is(err, errSchema1):
		return fault.New("import image: "+errSchema1.Error(), errdefs.ErrUnimplemented, err)
	case fault.IsOurs(err) && !errors.Is(err, errdefs.ErrNotFound):
		return fmt.Errorf("import image: %w", err)
	case cerrdefs.IsNotFound(err):
		return fault.New("import image: the archive lacks "+blobOf(text)+", or has it damaged", errdefs.ErrInvalidArgument, err)
	case fault.IsOurs(err):
		return fmt.Errorf("import image: %w", err)
	}
	return fault.New("import image: "+oneLine(text), errdefs.ErrInvalidArgument, err)
}
