// Package adminv1 is the service that Fairlead's command line uses beside the
// CRI, on the same socket: moving image archives in and out, pulls that tell
// their progress, removals that tell what went, what is in flight and what was, audits of the
// node, profiles of the daemon, and its runtime handlers. The CRI has no calls for these.
//
// Each message is a google.protobuf.BytesValue, a frame. What a frame holds is
// said at each method: JSON of a type in this package, or a piece of an
// archive. The service is written by hand because each of its methods is one
// stream of bytes. It is for Fairlead's own commands of the same version, and no
// interface for others.
package adminv1

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ServiceName is the full name of the service.
const ServiceName = "fairlead.admin.v1.Admin"

// ChunkSize is how much of an archive goes into one frame.
const ChunkSize = 256 << 10

// ImportRequest is the first frame of Import.
type ImportRequest struct {
	Ref string `json:"ref,omitempty"` // name for the archive's only image; empty means the archive's own names
}

// Image is an image that was imported or pulled.
type Image struct {
	ID   string   `json:"id"`
	Tags []string `json:"tags,omitempty"`
	Size int64    `json:"size"` // bytes on disk
}

// ImportReply is the only frame that Import answers.
type ImportReply struct {
	Images []Image `json:"images"`
}

// ExportRequest is the only frame that Export is asked with.
type ExportRequest struct {
	Refs []string `json:"refs"`
}

// PullRequest is the only frame that Pull is asked with.
type PullRequest struct {
	Ref  string `json:"ref"`
	Auth *Auth  `json:"auth,omitempty"`
	// Platform is that of the variant to pull, as "linux/arm64"; "" is this machine's.
	Platform string `json:"platform,omitempty"`
	// For are the pods that wait for it, which need not be made yet. Trace tells of
	// it as of what is done to them.
	For []PodName `json:"for,omitempty"`
}

// PodName is what a pod is told by before it has an id, with the meaning of the
// CRI's PodSandboxMetadata.
type PodName struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// Auth is a registry credential, with the meaning of the CRI's AuthConfig.
type Auth struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	Auth          string `json:"auth,omitempty"`
	ServerAddress string `json:"serverAddress,omitempty"`
	IdentityToken string `json:"identityToken,omitempty"`
	RegistryToken string `json:"registryToken,omitempty"`
}

// PullEvent is a frame of Pull's answer. The last one, and no other, has Image.
type PullEvent struct {
	Phase  string  `json:"phase,omitempty"` // "resolving", "downloading", "unpacking", "done"
	Layers []Layer `json:"layers,omitempty"`
	Image  *Image  `json:"image,omitempty"`
}

// Layer is the progress of one layer.
type Layer struct {
	Digest string `json:"digest"`
	Phase  string `json:"phase"`
	Done   int64  `json:"done"` // bytes of what the phase does
	Total  int64  `json:"total"`
}

// Stream is either end of a call.
type Stream interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// Server serves the calls. A method returns when its call is over.
//
// Larger than other interfaces: it is the service, and gRPC wants it whole.
type Server interface {
	// Import reads an ImportRequest and then the archive, and sends an ImportReply.
	Import(ctx context.Context, s Stream) error
	// Export reads an ExportRequest and sends the archive.
	Export(ctx context.Context, s Stream) error
	// Pull reads a PullRequest and sends PullEvents.
	Pull(ctx context.Context, s Stream) error
	// Remove reads a RemoveRequest and sends a RemoveReply.
	Remove(ctx context.Context, s Stream) error
	// Ops sends an OpsReply.
	Ops(ctx context.Context, s Stream) error
	// Trace reads a TraceRequest and sends a TraceReply.
	Trace(ctx context.Context, s Stream) error
	// Fsck reads an FsckRequest and sends an FsckReply.
	Fsck(ctx context.Context, s Stream) error
	// Profile reads a ProfileRequest, sends an empty frame when the profile has
	// begun, and at its end the profile, as an archive is sent. The end is when its
	// time is over, or before that when the client has closed its side.
	Profile(ctx context.Context, s Stream) error
	// Handlers sends a HandlersReply.
	Handlers(ctx context.Context, s Stream) error
	// VerifyHandler reads a VerifyRequest and sends VerifyEvents.
	VerifyHandler(ctx context.Context, s Stream) error
	// ChangeHandler reads a ChangeRequest and sends VerifyEvents.
	ChangeHandler(ctx context.Context, s Stream) error
	// Overhead reads an OverheadRequest and sends OverheadEvents.
	Overhead(ctx context.Context, s Stream) error
}

var desc = grpc.ServiceDesc{
	ServiceName: ServiceName,
	HandlerType: (*Server)(nil),
	Streams: []grpc.StreamDesc{
		stream("Import", Server.Import),
		stream("Export", Server.Export),
		stream("Pull", Server.Pull),
		stream("Remove", Server.Remove),
		stream("Ops", Server.Ops),
		stream("Trace", Server.Trace),
		stream("Fsck", Server.Fsck),
		stream("Profile", Server.Profile),
		stream("Handlers", Server.Handlers),
		stream("VerifyHandler", Server.VerifyHandler),
		stream("ChangeHandler", Server.ChangeHandler),
		stream("Overhead", Server.Overhead),
	},
	Metadata: "api/admin/v1/admin.go",
}

func stream(name string, call func(Server, context.Context, Stream) error) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: name, ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, s grpc.ServerStream) error { return call(srv.(Server), s.Context(), s) },
	}
}

// Register adds the service to a gRPC server.
func Register(r grpc.ServiceRegistrar, s Server) { r.RegisterService(&desc, s) }

// Open starts a call of the client, by the name of its method in Server.
func Open(ctx context.Context, conn grpc.ClientConnInterface, method string) (grpc.ClientStream, error) {
	for i := range desc.Streams {
		if desc.Streams[i].StreamName == method {
			return conn.NewStream(ctx, &desc.Streams[i], "/"+ServiceName+"/"+method)
		}
	}
	return nil, fmt.Errorf("the admin service has no method %q", method)
}

// Send sends a piece of an archive.
func Send(s Stream, data []byte) error { return s.SendMsg(wrapperspb.Bytes(data)) }

// Receive reads a frame; io.EOF ends the stream.
func Receive(s Stream) ([]byte, error) {
	var m wrapperspb.BytesValue
	if err := s.RecvMsg(&m); err != nil {
		return nil, err
	}
	return m.GetValue(), nil
}

// SendJSON sends a value of this package.
func SendJSON(s Stream, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	return Send(s, data)
}

// ReceiveJSON reads a value of this package.
func ReceiveJSON(s Stream, v any) error {
	data, err := Receive(s)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

// Reader reads the frames of an archive as one stream.
type Reader struct {
	S    Stream
	rest []byte
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		data, err := Receive(r.S)
		if err != nil {
			return 0, err
		}
		r.rest = data
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Writer sends what is written to it as frames of an archive.
type Writer struct{ S Stream }

// Write implements io.Writer.
func (w Writer) Write(p []byte) (int, error) {
	for at := 0; at < len(p); at += ChunkSize {
		if err := Send(w.S, p[at:min(at+ChunkSize, len(p))]); err != nil {
			return at, err
		}
	}
	return len(p), nil
}
