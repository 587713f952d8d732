package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	strictjson "sigs.k8s.io/json"
)

// DecodePayload reads a manifest strictly and checks it. Every mistake is in the
// error.
func DecodePayload(data []byte) (*RuntimePayload, error) {
	p := &RuntimePayload{}
	if err := decode(data, p); err != nil {
		return nil, fmt.Errorf("read %s: %w", ManifestName, err)
	}
	if errs := p.Validate(nil); len(errs) > 0 {
		return nil, fmt.Errorf("check %s: %w", ManifestName, errs.ToAggregate())
	}
	return p, nil
}

// Digest is the SHA-256 of a manifest, in hexadecimal. It is of what the manifest
// says and not of a file: an object and an image that say the same have the same.
func (p *RuntimePayload) Digest() (string, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", ManifestName, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// DecodeSettings reads settings strictly and checks what can be checked without
// the payload; CheckAgainst does the rest.
func DecodeSettings(data []byte) (*InstallSettings, error) {
	s := &InstallSettings{}
	if err := decode(data, s); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if errs := s.Validate(nil); len(errs) > 0 {
		return nil, fmt.Errorf("check settings: %w", errs.ToAggregate())
	}
	return s, nil
}

// DecodeResult reads what an installer left as its termination message. Fields
// that it does not know are no mistake: the installer may be newer.
func DecodeResult(data []byte) (*InstallResult, error) {
	r := &InstallResult{}
	if len(data) > MaxDocument {
		return nil, errTooLarge
	}
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(data, r); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if r.APIVersion != APIVersion || r.Kind != KindResult {
		return nil, fmt.Errorf("read result: it is %s %s and not %s %s", r.APIVersion, r.Kind, APIVersion, KindResult)
	}
	return r, nil
}

var errTooLarge = fmt.Errorf("it is larger than %d bytes", MaxDocument)

func decode(data []byte, into any) error {
	if len(data) > MaxDocument {
		return errTooLarge
	}
	strict, err := strictjson.UnmarshalStrict(data, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}
