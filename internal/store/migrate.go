package store

import (
	"encoding/json"
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// A migration turns a record of version n, at index n-1 of migrations, into
// one of version n+1. It works on plain JSON so that it keeps meaning the same
// when the types move on.
type migration func(map[string]any) error

var migrations []migration

func decode(value []byte) (*pod.Record, error) {
	// Nearly all are of this build's version, and reading twice takes twice as long.
	if r := new(pod.Record); json.Unmarshal(value, r) == nil && r.Version == pod.RecordVersion {
		return r, nil
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return nil, fmt.Errorf("not a record: %w", err)
	}
	if head.Version < 1 || head.Version > pod.RecordVersion {
		return nil, fmt.Errorf("it has version %d, and this build reads 1 to %d; was it written by a newer fairlead?: %w",
			head.Version, pod.RecordVersion, errdefs.ErrInternal)
	}
	value, err := migrate(value, head.Version, migrations)
	if err != nil {
		return nil, err
	}
	var r pod.Record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("not a record: %w", err)
	}
	return &r, nil
}

func migrate(value []byte, from int, steps []migration) ([]byte, error) {
	if from > len(steps) {
		return value, nil
	}
	var plain map[string]any
	if err := json.Unmarshal(value, &plain); err != nil {
		return nil, fmt.Errorf("not a record: %w", err)
	}
	for n := from; n <= len(steps); n++ {
		if err := steps[n-1](plain); err != nil {
			return nil, fmt.Errorf("migrate record from version %d: %w", n, err)
		}
		plain["version"] = n + 1
	}
	return json.Marshal(plain)
}
