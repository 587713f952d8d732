package staging

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
)

// shop is a content store with its records.
type shop struct {
	t       *testing.T
	ctx     context.Context
	blobs   *Blobs
	db      *metadata.DB
	records content.Store
}

func newShop(t *testing.T) *shop {
	t.Helper()
	dir := t.TempDir()
	blobs, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	file, err := bolt.Open(filepath.Join(dir, "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	db := metadata.NewDB(file, blobs, nil)
	return &shop{t, namespaces.WithNamespace(t.Context(), "test"), blobs, db, db.ContentStore()}
}

func (s *shop) bring(stage *Stage, data string) digest.Digest {
	s.t.Helper()
	d := digest.FromString(data)
	desc := ocispec.Descriptor{Digest: d, Size: int64(len(data))}
	if err := content.WriteBlob(s.ctx, stage, "ref-"+data, bytes.NewReader([]byte(data)), desc); err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *shop) register(stage *Stage) {
	s.t.Helper()
	err := s.db.Update(func(tx *bolt.Tx) error { return stage.Register(boltutil.WithTransaction(s.ctx, tx)) })
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) release(stage *Stage) {
	s.t.Helper()
	if err := stage.Release(s.ctx); err != nil {
		s.t.Fatal(err)
	}
}

// collect forgets a blob's record, if there is one, and collects what is on none.
func (s *shop) collect(d digest.Digest) {
	s.t.Helper()
	if err := s.records.Delete(s.ctx, d); err != nil && !cerrdefs.IsNotFound(err) {
		s.t.Fatal(err)
	}
	if _, err := s.db.GarbageCollect(s.ctx); err != nil {
		s.t.Fatal(err)
	}
}

// want says where a blob has to be: its file, and its record.
func (s *shop) want(when string, d digest.Digest, file, record bool) {
	s.t.Helper()
	_, err := os.Stat(s.blobs.file(d))
	if got := err == nil; got != file {
		s.t.Errorf("%s: the file is there: %t", when, got)
	}
	_, err = s.records.Info(s.ctx, d)
	if got := err == nil; got != record {
		s.t.Errorf("%s: the record is there: %t", when, got)
	}
}

func TestRegister(t *testing.T) {
	s := newShop(t)
	stage := s.blobs.New(s.records)
	d := s.bring(stage, "blob")
	s.want("staged", d, true, false)
	if b, err := content.ReadBlob(s.ctx, stage, ocispec.Descriptor{Digest: d}); err != nil || string(b) != "blob" {
		t.Errorf("the stage has %q, %v", b, err)
	}
	for name, value := range map[string]string{"a": "1", "b": "2"} {
		if _, err := stage.Update(s.ctx, content.Info{Digest: d, Labels: map[string]string{name: value}}, "labels."+name); err != nil {
			t.Fatal(err)
		}
	}
	s.register(stage)
	s.release(stage)
	s.want("registered", d, true, true)
	info, err := s.records.Info(s.ctx, d)
	if err != nil || info.Size != 4 || info.Labels["a"] != "1" || info.Labels["b"] != "2" {
		t.Errorf("on record: %+v, %v", info, err)
	}

	// Another image has the same blob, and says more about it.
	stage = s.blobs.New(s.records)
	if s.bring(stage, "blob") != d {
		t.Fatal("another digest")
	}
	if _, err := stage.Update(s.ctx, content.Info{Digest: d, Labels: map[string]string{"c": "3", "a": ""}}, "labels.c", "labels.a"); err != nil {
		t.Fatal(err)
	}
	s.register(stage)
	s.release(stage)
	info, err = s.records.Info(s.ctx, d)
	if err != nil || len(info.Labels) != 2 || info.Labels["b"] != "2" || info.Labels["c"] != "3" {
		t.Errorf("on record: %+v, %v", info, err)
	}
}

// TestCollection: what a stage has is not collected, whether it arrived or was
// found, and is put on record although its record has gone in between.
func TestCollection(t *testing.T) {
	s := newShop(t)
	first := s.blobs.New(s.records)
	found, other := s.bring(first, "found"), s.bring(first, "other")
	s.register(first)
	s.release(first)

	stage := s.blobs.New(s.records)
	arrived := s.bring(stage, "arrived")
	if s.bring(stage, "found") != found {
		t.Fatal("another digest")
	}
	s.collect(found)
	s.want("held, after a collection", found, true, false)
	s.want("held, after a collection", arrived, true, false)
	s.want("of no use", other, false, false)
	s.register(stage)
	s.release(stage)
	s.want("registered", found, true, true)
	s.want("registered", arrived, true, true)
	s.collect(found)
	s.want("released, after a collection", found, false, false)
}

// TestRelease: what was not registered goes with the last stage that has it.
func TestRelease(t *testing.T) {
	s := newShop(t)
	one, two := s.blobs.New(s.records), s.blobs.New(s.records)
	d := s.bring(one, "blob")
	if _, err := two.Writer(s.ctx, content.WithRef("x"), content.WithDescriptor(ocispec.Descriptor{Digest: d, Size: 4})); !cerrdefs.IsAlreadyExists(err) {
		t.Fatalf("the other stage: %v", err)
	}
	s.release(one)
	s.want("of one stage", d, true, false)
	s.release(two)
	s.want("of no stage", d, false, false)
}

func TestBadBlobs(t *testing.T) {
	s := newShop(t)
	stage := s.blobs.New(s.records)
	good := digest.FromString("good")
	write := func(data string, size int64, opts ...content.WriterOpt) error {
		w, err := stage.Writer(s.ctx, append(opts, content.WithRef("r"))...)
		if err != nil {
			return err
		}
		if _, err := w.Write([]byte(data)); err != nil {
			return err
		}
		return errors.Join(w.Commit(s.ctx, size, good), w.Close())
	}
	var other *DigestError
	if err := write("evil", 4); !errors.As(err, &other) || other.Want != good {
		t.Errorf("another digest: %v", err)
	}
	if err := write("good", 5); !errors.Is(err, cerrdefs.ErrFailedPrecondition) {
		t.Errorf("another size: %v", err)
	}
	if err := write("x", 0, content.WithDescriptor(ocispec.Descriptor{Digest: "sha256:../../x"})); err == nil {
		t.Error("a digest that is a path was taken")
	}
	if left, _ := os.ReadDir(s.blobs.incoming()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	s.want("never there", good, false, false)
	w, err := stage.Writer(s.ctx, content.WithRef("r"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("bad, then ")); err != nil {
		t.Fatal(err)
	}
	if err := w.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("good")); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(s.ctx, 4, good); err != nil {
		t.Errorf("after a new beginning: %v", err)
	}
	s.want("staged", good, true, false)
	s.release(stage)
}
