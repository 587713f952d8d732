package apiserver

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// serve finds the resource and the verb.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	of, call := s.find(r)
	s.mu.Lock()
	s.calls[call]++
	fail, intercept := s.fail, s.intercept
	s.mu.Unlock()
	if intercept != nil && intercept(call, w, r) {
		return
	}
	if fail != nil {
		if code := fail(call); code != 0 {
			status(w, code, http.StatusText(code))
			return
		}
	}
	if of == nil {
		status(w, http.StatusNotFound, "NotFound")
		return
	}
	switch call.Verb {
	case "list":
		s.list(w, r, of)
	case "watch":
		s.watch(w, r, of)
	default:
		s.one(w, r, call, of)
	}
}

// find reads /api/v1/[namespaces/NAME/]RESOURCE[/NAME], and with /apis/GROUP.
func (s *Server) find(r *http.Request) (*resource, Call) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	prefix := min(len(parts), 2)
	if parts[0] == "apis" {
		prefix = min(len(parts), 3)
	}
	rest := parts[prefix:]
	var call Call
	if len(rest) > 2 && rest[0] == "namespaces" {
		call.Namespace, rest = rest[1], rest[2:]
	}
	if len(rest) > 1 {
		call.Name = rest[1]
	}
	if len(rest) > 0 {
		call.Resource = rest[0]
	}
	if len(rest) > 2 {
		call.Subresource = rest[2]
	}
	if prefix == 3 {
		call.Group = parts[1]
	}
	call.Verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	if call.Verb == "get" && call.Name == "" {
		call.Verb = "list"
		if w := r.URL.Query().Get("watch"); w == "true" || w == "1" {
			call.Verb = "watch"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resources[strings.Join(append(slices.Clone(parts[:prefix]), call.Resource), "/")], call
}

// list answers with all that fits, or with as many as are asked for: the rest is
// after the key that the answer has as continue.
func (s *Server) list(w http.ResponseWriter, r *http.Request, of *resource) {
	s.mu.Lock()
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	after, next := r.URL.Query().Get("continue"), ""
	items, last := []Object{}, ""
	for _, key := range slices.Sorted(maps.Keys(of.objects)) {
		if key <= after && after != "" || !selects(r, of.objects[key]) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = last
			break
		}
		items, last = append(items, of.objects[key]), key
	}
	meta := Object{"resourceVersion": strconv.Itoa(s.version), "continue": next}
	s.mu.Unlock()
	answer(w, http.StatusOK, Object{"kind": of.Kind + "List", "apiVersion": of.apiVersion(), "items": items, "metadata": meta})
}

// watch tells of changes until the client is gone, or the resource is.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, of *resource) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	out := json.NewEncoder(w)
	w.Header().Set("Content-Type", "application/json")
	flusher, _ := w.(http.Flusher)
	stop := s.wakeWith(r)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range of.objects {
			if selects(r, o) {
				_ = out.Encode(Object{"type": "ADDED", "object": o})
			}
		}
		since = s.version
		_ = out.Encode(Object{"type": "BOOKMARK", "object": of.bookmark(since, true)})
	}
	for next, begun := 0, s.hangUps; ; {
		for ; next < len(of.events); next++ {
			e := of.events[next]
			switch {
			case e.version <= since:
			case e.old == nil && e.now == nil:
				_ = out.Encode(Object{"type": "BOOKMARK", "object": of.bookmark(e.version, false)})
			default:
				tell(out, r, e)
			}
		}
		flusher.Flush()
		if of.gone || r.Context().Err() != nil || s.hangUps != begun {
			return
		}
		s.changed.Wait()
	}
}

// Bookmark tells all watches that nothing is new.
func (s *Server) Bookmark(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	of := s.resources[r.Path]
	of.events = append(of.events, event{version: s.version})
	s.changed.Broadcast()
}

func (r *resource) bookmark(version int, first bool) Object {
	meta := Object{"resourceVersion": strconv.Itoa(version)}
	if first {
		meta["annotations"] = Object{"k8s.io/initial-events-end": "true"}
	}
	return Object{"kind": r.Kind, "apiVersion": r.apiVersion(), "metadata": meta}
}

// wakeWith wakes the watch of a request when its client is gone.
func (s *Server) wakeWith(r *http.Request) func() {
	done := make(chan struct{})
	go func() {
		select {
		case <-r.Context().Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// tell encodes a change as the one who asks sees it: what no longer fits is gone.
func tell(out *json.Encoder, r *http.Request, e event) {
	was, is := e.old != nil && selects(r, e.old), e.now != nil && selects(r, e.now)
	switch {
	case was && is:
		_ = out.Encode(Object{"type": "MODIFIED", "object": e.now})
	case is:
		_ = out.Encode(Object{"type": "ADDED", "object": e.now})
	case was && e.now != nil:
		_ = out.Encode(Object{"type": "DELETED", "object": e.now})
	case was:
		_ = out.Encode(Object{"type": "DELETED", "object": e.old})
	}
}

// selects knows labels, and the fields that clients here select by.
func selects(r *http.Request, o Object) bool {
	if text := r.URL.Query().Get("labelSelector"); text != "" {
		selector, err := labels.Parse(text)
		if err != nil || !selector.Matches(labelsOf(o)) {
			return false
		}
	}
	text := r.URL.Query().Get("fieldSelector")
	if text == "" {
		return true
	}
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return false
	}
	inStatus, _ := o["status"].(map[string]any)
	inSpec, _ := o["spec"].(map[string]any)
	phase, _ := inStatus["phase"].(string)
	node, _ := inSpec["nodeName"].(string)
	name, _ := metaOf(o)["name"].(string)
	return selector.Matches(fields.Set{"status.phase": phase, "metadata.name": name, "spec.nodeName": node})
}

func labelsOf(o Object) labels.Set {
	all, _ := metaOf(o)["labels"].(map[string]any)
	out := labels.Set{}
	for key, value := range all {
		out[key], _ = value.(string)
	}
	return out
}

// one serves requests for a single object.
func (s *Server) one(w http.ResponseWriter, r *http.Request, call Call, of *resource) {
	key := call.Name
	if call.Namespace != "" {
		key = call.Namespace + "/" + call.Name
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had := of.objects[key]
	if had == nil && r.Method != http.MethodPost {
		status(w, http.StatusNotFound, "NotFound")
		return
	}
	if r.Method == http.MethodGet {
		answer(w, http.StatusOK, had)
		return
	}
	if r.Method == http.MethodDelete {
		if !allowed(had, body) {
			status(w, http.StatusConflict, "Conflict")
			return
		}
		s.end(of, key)
		answer(w, http.StatusOK, Object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
		return
	}
	now := Object{}
	if r.Method == http.MethodPatch {
		body, err = patched(had, body, r.Header.Get("Content-Type"))
	}
	if err == nil {
		err = json.Unmarshal(body, &now)
	}
	if err != nil {
		status(w, http.StatusBadRequest, "BadRequest")
		return
	}
	s.write(w, r, change{of: of, had: had, now: now})
}

// change is a write that is asked for.
type change struct {
	of       *resource
	had, now Object
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, c change) {
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
		if c.of.objects[keyOf(c.now)] != nil {
			status(w, http.StatusConflict, "AlreadyExists")
			return
		}
	}
	if c.had != nil && (differs(metaOf(c.now)["resourceVersion"], metaOf(c.had)["resourceVersion"]) || differs(metaOf(c.now)["uid"], metaOf(c.had)["uid"])) {
		status(w, http.StatusConflict, "Conflict")
		return
	}
	if c.had != nil && !reflect.DeepEqual(c.had["spec"], c.now["spec"]) {
		// Whoever watches for changes of a specification goes by this.
		generation, _ := metaOf(c.had)["generation"].(float64)
		metaOf(c.now)["generation"] = generation + 1
	}
	s.store(c.of, c.now)
	// A pod has a time of deletion and no finalizer for as long as its node takes.
	if meta := metaOf(c.now); meta["deletionTimestamp"] != nil && c.had != nil && held(metaOf(c.had)) && !held(meta) {
		s.drop(c.of, keyOf(c.now))
	}
	answer(w, code, c.now)
}

// held says that an object stays until somebody has done something about its deletion.
func held(meta map[string]any) bool {
	all, _ := meta["finalizers"].([]any)
	return len(all) > 0
}

// end deletes an object, or marks one that is held.
func (s *Server) end(of *resource, key string) {
	had := of.objects[key]
	if !held(metaOf(had)) {
		s.drop(of, key)
		return
	}
	if metaOf(had)["deletionTimestamp"] != nil {
		return
	}
	now, meta := maps.Clone(had), maps.Clone(metaOf(had))
	generation, _ := meta["generation"].(float64)
	meta["deletionTimestamp"], meta["generation"] = time.Now().UTC().Format(time.RFC3339), generation+1
	now["metadata"] = meta
	s.store(of, now)
}

// differs says that a client insists on another value.
func differs(wants, has any) bool { return wants != nil && wants != "" && wants != has }

// allowed says whether an object is the one that a request to delete is about.
func allowed(had Object, body []byte) bool {
	var options struct{ Preconditions map[string]any }
	if json.Unmarshal(body, &options) != nil {
		return true
	}
	for field, wants := range options.Preconditions {
		if differs(wants, metaOf(had)[field]) {
			return false
		}
	}
	return true
}

// patched applies a patch of a kind that API servers take.
func patched(had Object, patch []byte, kind string) ([]byte, error) {
	text, err := json.Marshal(had)
	if err != nil {
		return nil, err
	}
	if kind == "application/merge-patch+json" {
		return jsonpatch.MergePatch(text, patch)
	}
	if kind == "application/strategic-merge-patch+json" {
		return strategic(text, patch)
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return operations.Apply(text)
}

func answer(w http.ResponseWriter, code int, o Object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func status(w http.ResponseWriter, code int, reason string) {
	answer(w, code, Object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
	})
}
