package images

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// auth is what a registry demands. The zero value lets everybody in.
type auth struct {
	scheme         string // "Basic" or "Bearer"
	user, password string
	refresh        string // refresh token that is worth a bearer token
	bearer         string
}

// RequireBasic makes the registry ask for a password.
func (r *Registry) RequireBasic(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.auth = auth{scheme: "Basic", user: user, password: password}
}

// RequireToken makes the registry ask for a bearer token, which its token
// service gives for the password or for the refresh token.
func (r *Registry) RequireToken(user, password, refresh string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.auth = auth{scheme: "Bearer", user: user, password: password, refresh: refresh, bearer: "bearer-of-" + user}
}

// BearerToken is what the token service hands out.
func (r *Registry) BearerToken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.auth.bearer
}

func (r *Registry) allowed(w http.ResponseWriter, req *http.Request) bool {
	r.mu.Lock()
	a := r.auth
	r.mu.Unlock()
	challenge := ""
	switch a.scheme {
	case "":
		return true
	case "Basic":
		if u, p, ok := req.BasicAuth(); ok && u == a.user && p == a.password {
			return true
		}
		challenge = `Basic realm="test"`
	case "Bearer":
		if req.Header.Get("Authorization") == "Bearer "+a.bearer {
			return true
		}
		challenge = fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, req.Host)
	}
	w.Header().Set("WWW-Authenticate", challenge)
	http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"log in first"}]}`, http.StatusUnauthorized)
	return false
}

// serveToken is the token service: GET with a password, or POST with a
// password or a refresh token (OAuth2).
func (r *Registry) serveToken(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	a := r.auth
	r.mu.Unlock()
	user, password, _ := req.BasicAuth()
	refresh := ""
	if req.Method == http.MethodPost {
		user, password, refresh = req.PostFormValue("username"), req.PostFormValue("password"), req.PostFormValue("refresh_token")
	}
	if (user != a.user || password != a.password) && (refresh == "" || refresh != a.refresh) {
		http.Error(w, "wrong password", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"token":%q,"access_token":%q,"expires_in":300}`, a.bearer, a.bearer)
}

func certificatePEM(srv *httptest.Server) []byte {
	if srv.Certificate() == nil {
		return nil
	}
	var b strings.Builder
	_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}) // a Builder takes everything
	return []byte(b.String())
}
