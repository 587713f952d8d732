package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
)

// Folder holds certificates with their keys, as NAME-DATE.pem, and a link
// NAME-current.pem to the one that counts.
type Folder struct{ Dir, Name string }

// CurrentPath is the link.
func (f Folder) CurrentPath() string { return filepath.Join(f.Dir, f.Name+"-current.pem") }

func (f Folder) pendingPath() string { return filepath.Join(f.Dir, f.Name+".key.tmp") }

// Current is the certificate that counts. There may be none (ErrNotFound).
func (f Folder) Current() (*tls.Certificate, error) {
	text, err := os.ReadFile(f.CurrentPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read certificate %s: %w", f.CurrentPath(), errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return pair(text, text, f.CurrentPath())
}

func pair(certificate, key []byte, from string) (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", from, err)
	}
	if c.Leaf == nil {
		if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return nil, fmt.Errorf("read the certificate of %s: %w", from, err)
		}
	}
	return &c, nil
}

// Put makes a certificate the one that counts. Who reads the link finds either the
// old or the new one, whole.
func (f Folder) Put(certificate, key []byte, now time.Time) (*tls.Certificate, error) {
	c, err := pair(certificate, key, f.Name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(f.Dir, fmt.Sprintf("%s-%s.pem", f.Name, now.UTC().Format("2006-01-02-15-04-05.000000000")))
	if err := atomicfile.WriteSync(path, append(bytes.Clone(certificate), key...), 0o600); err != nil {
		return nil, fmt.Errorf("keep certificate: %w", err)
	}
	was, _ := os.Readlink(f.CurrentPath())
	link := f.CurrentPath() + ".new"
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("link certificate: %w", err)
	}
	if err := os.Symlink(filepath.Base(path), link); err != nil {
		return nil, fmt.Errorf("link certificate: %w", err)
	}
	if err := os.Rename(link, f.CurrentPath()); err != nil {
		return nil, fmt.Errorf("link certificate: %w", err)
	}
	if was != "" && was != filepath.Base(path) && !filepath.IsAbs(was) {
		_ = os.Remove(filepath.Join(f.Dir, was)) // nobody reads it any more; left over, it only takes room
	}
	return c, nil
}

// pendingKey is the key of the request that is under way: it must be the same after
// a restart, so that the answer to the request can be used.
func (f Folder) pendingKey() (key crypto.Signer, text []byte, err error) {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the folder of certificates: %w", err)
	}
	text, err = os.ReadFile(f.pendingPath())
	if err == nil {
		if key := parseKey(text); key != nil {
			return key, text, nil
		}
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(made)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	text = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := atomicfile.WriteSync(f.pendingPath(), text, 0o600); err != nil {
		return nil, nil, fmt.Errorf("keep key: %w", err)
	}
	return made, text, nil
}

// parseKey is nil for what is no key of ours: half of a file, say.
func parseKey(text []byte) crypto.Signer {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	return key
}

// dropPending has the next request made with another key.
func (f Folder) dropPending() error {
	if err := os.Remove(f.pendingPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop key: %w", err)
	}
	return nil
}
