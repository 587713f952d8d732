package handlers

import "fairlead.run/internal/node/advert"

// Advert is the handlers as a Node object tells of them; nil if the runtime does not
// tell what they can do.
func (s *Set) Advert() []advert.Handler {
	if !s.known {
		return nil
	}
	var out []advert.Handler
	for _, h := range s.list {
		out = append(out, advert.Handler{Name: h.Name, OnTrial: h.Trying, Works: h.Ready, Features: h.features})
	}
	return out
}
