package stage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
)

// ReadManifest reads the manifest of a payload in a folder, and returns its hash, too.
func ReadManifest(dir string) (*payload.RuntimePayload, string, error) {
	f, err := os.Open(filepath.Join(dir, payload.ManifestName))
	if err != nil {
		return nil, "", fault.New(payload.PayloadInvalid, "open the payload: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, payload.MaxDocument+1))
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", f.Name(), err)
	}
	p, err := payload.DecodePayload(data)
	if err != nil {
		return nil, "", fault.New(payload.PayloadInvalid, "%s: %w", dir, err)
	}
	sum := sha256.Sum256(data)
	return p, hex.EncodeToString(sum[:]), nil
}
