package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/bench/peer"
	"fairlead.run/test/images"
)

// pulled is an image that is pulled to take the time of it.
type pulled struct {
	mb     int // compressed
	layers int
}

func (p pulled) name() string   { return fmt.Sprintf("pull %d MB", p.mb) }
func (p pulled) repo() string   { return fmt.Sprintf("bench/size%d", p.mb) }
func (p pulled) String() string { return fmt.Sprintf("%d MB in %d layers", p.mb, p.layers) }

// tag is of the image of one round.
func (p pulled) tag(round int) string   { return fmt.Sprintf("%s:round%d", p.repo(), round+1) }
func (p pulled) image(round int) string { return peer.RegistryAddress + "/" + p.tag(round) }

// registry counts the blobs that were fetched of each repository, so that a
// pull that found something already there is seen.
type registry struct {
	*images.Registry
	mu    sync.Mutex
	blobs map[string]int
}

func newRegistry() *registry {
	return &registry{Registry: images.NewRegistry(), blobs: map[string]int{}}
}

// ServeHTTP is the registry.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	repo, _, blob := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/"), "/blobs/")
	if blob && req.Method == http.MethodGet && req.Header.Get("Range") == "" {
		r.mu.Lock()
		r.blobs[repo]++
		r.mu.Unlock()
	}
	r.Registry.ServeHTTP(w, req)
}

// taken is how many blobs of a repository were fetched since it was last asked.
func (r *registry) taken(repo string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.blobs[repo]
	r.blobs[repo] = 0
	return n
}

// serve makes the image of that size for a round and puts it into the registry,
// in the place of the last round's.
func (r *registry) serve(p pulled, round int) error {
	spec := images.Spec{Config: ocispec.ImageConfig{Entrypoint: []string{"/none"}}}
	random := rand.New(rand.NewPCG(uint64(round), uint64(p.mb)))
	for n := range p.layers {
		spec.Layers = append(spec.Layers, images.Layer{Files: files(random, n, p.mb*1000_000/p.layers)})
	}
	img, err := images.Build(spec)
	if err != nil {
		return fmt.Errorf("build an image of %s: %w", p, err)
	}
	r.DropRepo(p.repo())
	r.Push(p.tag(round), img)
	return nil
}

// A block of a file is in part random, and compresses to a little more than
// that part, so that files are 2.4 times as large as what is fetched, as files
// of images usually are.
const (
	block      = 4096
	hard       = 1600
	compressed = 1700
)

// files are so many as compress to about that size: many small ones, and few
// large ones, as in images.
func files(random *rand.Rand, layer, size int) map[string]images.File {
	out := map[string]images.File{}
	for n := 0; size > 0; n++ {
		blocks := 1 << random.IntN(9) // up to 1 MiB
		blocks = min(blocks, max(1, size/compressed))
		name := fmt.Sprintf("usr/lib/layer%d/dir%d/file%d", layer, n/50, n)
		out[name] = images.File{Body: content(random, blocks), Mode: 0o644}
		size -= blocks * compressed
	}
	return out
}

var easy = []byte(strings.Repeat("the same again and again, as texts and tables have it; ", 60))

func content(random *rand.Rand, blocks int) []byte {
	var b bytes.Buffer
	b.Grow(blocks * block)
	var word [8]byte
	for range blocks {
		for range hard / len(word) {
			v := random.Uint64()
			for i := range word {
				word[i] = byte(v >> (8 * i))
			}
			b.Write(word[:])
		}
		b.Write(easy[:block-hard])
	}
	return b.Bytes()
}
