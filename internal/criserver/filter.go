package criserver

import "fairlead.run/internal/pod"

// podsByID is the pod with that id, or with the only id that begins so, in a
// list of at most one; or all pods for "". Nothing found is an empty list.
func (s *Server) podsByID(id string) []*pod.Record {
	if id == "" {
		return s.cfg.Pods.Pods()
	}
	if r, err := s.cfg.Pods.FindPod(id); err == nil {
		return []*pod.Record{r}
	}
	return nil
}

// hasLabels says whether all of want are in have, with the same values.
func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
