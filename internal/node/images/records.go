package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/hostpath"
)

// Verification says for which images that are present a pod has to have had
// the credentials. The names are those of a kubelet's
// imagePullCredentialsVerificationPolicy.
type Verification string

// The policies. The empty one is NeverVerifyPreloadedImages.
const (
	NeverVerify                  Verification = "NeverVerify"
	NeverVerifyPreloadedImages   Verification = "NeverVerifyPreloadedImages"   // only what was pulled from here
	NeverVerifyAllowlistedImages Verification = "NeverVerifyAllowlistedImages" // what was pulled, and what no list names
	AlwaysVerify                 Verification = "AlwaysVerify"
)

// maxSecrets bounds what is remembered of one image.
const maxSecrets = 100

// record is how an image came to this node. One without repositories was
// pulled by a pull that nobody saw end: nobody may have it without asking.
type record struct {
	Image        string             `json:"image"` // the runtime's id
	Updated      time.Time          `json:"updated"`
	Repositories map[string]*access `json:"repositories"`

	unwritten bool // the file is older
}

// access is who may use an image by the name of a repository.
type access struct {
	EveryPod        bool         `json:"everyPod,omitempty"`
	Secrets         []usedSecret `json:"secrets,omitempty"` // the latest last
	ServiceAccounts []Object     `json:"serviceAccounts,omitempty"`
}

type usedSecret struct {
	Object
	Hash string `json:"hash"` // of the credential
}

// Reasons of events of the node.
const (
	PullRecordsIgnored = "PullRecordsIgnored" // they cannot be read
	PullNotRecorded    = "PullNotRecorded"
)

// records remember how images came here. Files follow what memory has. They are
// not flushed: that would take long while an image is written to the same
// disk. After a power cut a journal has the file of a pull if it has the image,
// and an empty file of an image means that it has to be asked for.
type records struct {
	dir    string // "": in memory alone
	policy Verification
	listed []string
	log    *slog.Logger
	warn   func(reason, message string)

	files   sync.Mutex // held while a file is written, and taken before mu
	mu      sync.Mutex
	pulled  map[string]*record // by the base of the file's name
	pulling map[string]notice  // by the same, of the image's full name
	told    string             // why records cannot be written
}

// notice is what is known of pulls without a record.
type notice struct {
	underWay int
	left     bool // one that nobody saw end
}

// outcome is how a pull ended.
type outcome int

const (
	recorded outcome = iota
	failed
	left // it may still come to its end
)

// openRecords reads the folder, which has pulled/ and pulling/ below it.
func openRecords(c Config) (*records, error) {
	r := &records{
		dir: c.Records, policy: c.Verify, listed: c.Allowlist, log: c.Log, warn: c.Warn,
		pulled: map[string]*record{}, pulling: map[string]notice{},
	}
	if r.dir == "" {
		return r, nil
	}
	for _, sub := range []string{"pulled", "pulling"} {
		if err := os.MkdirAll(filepath.Join(r.dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make the folder for records of pulls: %w", err)
		}
	}
	var broken []string
	if err := r.each("pulled", func(base string) {
		rec := &record{}
		data, err := os.ReadFile(filepath.Join(r.dir, "pulled", base))
		if err == nil {
			err = json.Unmarshal(data, rec)
		}
		if err != nil {
			broken = append(broken, fmt.Sprintf("%s: %s%s", base, err, hostpath.Advice(err)))
			rec = &record{}
		}
		r.pulled[base] = rec
	}); err != nil {
		return nil, err
	}
	if n := len(broken); n > 0 {
		r.warn(PullRecordsIgnored, fmt.Sprintf("Of %d images it is not known by which credentials they were pulled, so that only pods with credentials get them, until they are pulled again; what cannot be read of %s, for one, is %s", n, r.dir, broken[0]))
	}
	err := r.each("pulling", func(base string) { r.pulling[base] = notice{left: true} })
	return r, err
}

func (r *records) each(sub string, use func(base string)) error {
	files, err := os.ReadDir(filepath.Join(r.dir, sub))
	if err != nil {
		return fmt.Errorf("list records of pulls: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(r.dir, sub, f.Name())
		if strings.HasPrefix(f.Name(), ".") { // what a write left that was cut off
			_ = os.Remove(path)
			continue
		}
		use(f.Name())
	}
	return nil
}

func base(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// flush makes a file what memory says.
func (r *records) flush(sub, base string) error {
	if r.dir == "" {
		return nil
	}
	r.files.Lock()
	defer r.files.Unlock()
	path := filepath.Join(r.dir, sub, base)
	data, err := r.content(sub, base)
	if err != nil {
		return err
	}
	if data != nil {
		return atomicfile.Write(path, data, 0o600)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// content is what a file has to have; nil for no file.
func (r *records) content(sub, base string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sub == "pulling" {
		if _, ok := r.pulling[base]; ok {
			return []byte{}, nil
		}
		return nil, nil
	}
	if rec := r.pulled[base]; rec != nil {
		return json.Marshal(rec)
	}
	return nil, nil
}

// begin notes that an image will be pulled, so that it does not count as one
// that was here before if nobody sees the end.
func (r *records) begin(image string) error {
	file := base(image)
	r.mu.Lock()
	n := r.pulling[file]
	n.underWay++
	r.pulling[file] = n
	r.mu.Unlock()
	if err := r.flush("pulling", file); err != nil {
		r.end(image, failed)
		return fmt.Errorf("note that image %s is pulled: %w", image, err)
	}
	return nil
}

// end takes back begin. The note of a pull that was left stays until another
// one was recorded.
func (r *records) end(image string, how outcome) {
	file := base(image)
	r.mu.Lock()
	n := r.pulling[file]
	n.underWay--
	switch how {
	case recorded:
		n.left = false
	case left:
		n.left = true
	}
	over := n.underWay == 0 && !n.left
	if r.pulling[file] = n; over {
		delete(r.pulling, file)
	}
	r.mu.Unlock()
	if !over {
		return
	}
	if err := r.flush("pulling", file); err != nil {
		r.log.Warn("The note of a pull cannot be removed. After a restart its image is used only with credentials.", "image", image, "error", err)
	}
}

// add notes that an image is here by a credential; nil stands for none. It says
// whether a restart will know it.
func (r *records) add(n name, id string, by *Credential) bool {
	if !r.learn(n, id, by) {
		return true
	}
	err := r.flush("pulled", base(id))
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.pulled[base(id)]; rec != nil {
		rec.unwritten = err != nil
	}
	why := ""
	if err != nil {
		why = fmt.Sprint(errors.Unwrap(err)) // the same for each image
	}
	if why != "" && why != r.told {
		r.warn(PullNotRecorded, fmt.Sprintf("How image %s was pulled, and maybe others, cannot be recorded, so that it may have to be pulled again after a restart: %s%s", n.full, err, hostpath.Advice(err)))
	}
	r.told = why
	return err == nil
}

// learn says whether there is something to write.
func (r *records) learn(n name, id string, by *Credential) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.pulled[base(id)]
	if rec == nil || rec.Repositories == nil {
		rec = &record{Image: id, Repositories: map[string]*access{}}
		r.pulled[base(id)] = rec
	}
	a := rec.Repositories[n.repository]
	if a == nil {
		a = &access{}
		rec.Repositories[n.repository] = a
	}
	if !a.add(by) {
		return rec.unwritten
	}
	rec.Updated = time.Now()
	return true
}

// add says whether that is something new.
func (a *access) add(by *Credential) bool {
	switch {
	case a.EveryPod:
		return false
	case by == nil || by.Source == Source{}:
		*a = access{EveryPod: true}
		return true
	case by.Source.Secret != nil:
		s := usedSecret{*by.Source.Secret, by.Auth.hash()}
		if slices.Contains(a.Secrets, s) {
			return false
		}
		a.Secrets = slices.DeleteFunc(a.Secrets, func(old usedSecret) bool { return old.Object == s.Object })
		a.Secrets = append(a.Secrets, s)
		a.Secrets = a.Secrets[max(0, len(a.Secrets)-maxSecrets):]
	default:
		if slices.Contains(a.ServiceAccounts, *by.Source.ServiceAccount) {
			return false
		}
		a.ServiceAccounts = append(a.ServiceAccounts, *by.Source.ServiceAccount)
		a.ServiceAccounts = a.ServiceAccounts[max(0, len(a.ServiceAccounts)-maxSecrets):]
	}
	return true
}

// open says that any pod may use an image that is here.
func (r *records) open(n name, info *runtimeapi.Image) bool {
	if r.policy == NeverVerify {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.pulled[base(info.GetId())]
	if rec == nil && !r.begun(n, info) {
		switch r.policy {
		case AlwaysVerify:
		case NeverVerifyAllowlistedImages:
			return allowed(r.listed, n.repository)
		default:
			return true
		}
	}
	return rec != nil && rec.Repositories[n.repository] != nil && rec.Repositories[n.repository].EveryPod
}

// begun says that a pull was begun that may have brought the image.
func (r *records) begun(n name, info *runtimeapi.Image) bool {
	if _, ok := r.pulling[base(n.full)]; ok {
		return true
	}
	for _, known := range slices.Concat(info.GetRepoTags(), info.GetRepoDigests()) {
		k, err := parseName(known)
		if _, ok := r.pulling[base(k.full)]; ok && err == nil {
			return true
		}
	}
	return false
}

// allowed matches a list of repositories, of which each may end with "/*".
func allowed(list []string, repository string) bool {
	for _, l := range list {
		if prefix, ok := strings.CutSuffix(l, "*"); l == repository || ok && strings.HasSuffix(prefix, "/") && strings.HasPrefix(repository, prefix) {
			return true
		}
	}
	return false
}

// grants says whether one of these credentials is known to be good for an image
// that is here: the same secret, whatever is in it now, or another with the
// same content. Where objects have no UID, only the content counts.
func (r *records) grants(n name, id string, credentials []Credential) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.pulled[base(id)]
	if rec == nil || rec.Repositories[n.repository] == nil {
		return false
	}
	a := rec.Repositories[n.repository]
	return slices.ContainsFunc(credentials, func(c Credential) bool {
		if account := c.Source.ServiceAccount; account != nil {
			return slices.Contains(a.ServiceAccounts, *account)
		}
		hash, secret := c.Auth.hash(), c.Source.Secret
		return secret != nil && slices.ContainsFunc(a.Secrets, func(s usedSecret) bool {
			return s.Hash == hash || secret.UID != "" && s.Object == *secret
		})
	})
}

// prune forgets what is not here any more, unless it came after the list was
// asked for.
func (r *records) prune(present map[string]bool, asked time.Time) {
	var gone []string
	here := map[string]bool{} // by file: one that is broken does not have the id
	for id := range present {
		here[base(id)] = true
	}
	r.mu.Lock()
	for file, rec := range r.pulled {
		if !here[file] && rec.Updated.Before(asked) {
			delete(r.pulled, file)
			gone = append(gone, file)
		}
	}
	r.mu.Unlock()
	for _, file := range gone {
		if err := r.flush("pulled", file); err != nil {
			r.log.Warn("The record of an image that is not here any more cannot be removed.", "error", err)
		}
	}
}
