package v1alpha1

import (
	"encoding/json"

	"github.com/pelletier/go-toml/v2"
)

// MarshalJSON gives the keys their names in the file, so that whoever reads the
// configuration in effect can look them up and copy them.
func (c *Config) MarshalJSON() ([]byte, error) {
	text, err := toml.Marshal(*c)
	if err != nil {
		return nil, err
	}
	var keys map[string]any
	if err := toml.Unmarshal(text, &keys); err != nil {
		return nil, err
	}
	return json.Marshal(keys)
}
