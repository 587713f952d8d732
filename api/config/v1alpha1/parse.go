package v1alpha1

// Parse is Default, changed by the text of one file. As with Load, the values
// are not validated yet.
func Parse(file string, data []byte) (*Config, error) {
	c := Default()
	if err := c.merge(file, data); err != nil {
		return nil, err
	}
	return c, nil
}
