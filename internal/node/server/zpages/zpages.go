// Package zpages serves what all parts of Kubernetes tell of themselves to who looks for a fault:
// /statusz, which program runs since when (KEP-4827), and /flagz, with which flags it was started
// (KEP-4828). They are text for people, or objects of config.k8s.io for whoever asks for these.
//
// Who may read them is not decided here.
package zpages

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// About is what there is to tell of a program.
type About struct {
	Component string // such as kubelet
	Version   string // that it behaves as
	Started   time.Time
	Flags     map[string]string // by name, without secrets
	Paths     []string          // that may be read beside these
}

// group is that of the objects, and versions are those of it, which do not differ.
const group = "config.k8s.io"

var versions = []string{"v1beta1", "v1alpha1"}

// head is the beginning of the texts.
const head = "\n%s %s\nWarning: This page is for people, and is written otherwise in another version. Programs ask for application/json;g=config.k8s.io;v=v1beta1;as=%s.\n\n"

type statusz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	StartTime        metav1.Time `json:"startTime"`
	UptimeSeconds    int64       `json:"uptimeSeconds"`
	GoVersion        string      `json:"goVersion"`
	BinaryVersion    string      `json:"binaryVersion"`
	EmulationVersion string      `json:"emulationVersion,omitempty"`
	Paths            []string    `json:"paths"`
}

type flagz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Flags map[string]string `json:"flags,omitempty"`
}

// Statusz answers /statusz.
func (a *About) Statusz(w http.ResponseWriter, r *http.Request) error {
	up := max(time.Since(a.Started), 0).Truncate(time.Second)
	as, object := form(r, "Statusz")
	if as == "" {
		return refuse(w, "Statusz")
	}
	if as == plain {
		return text(w, fmt.Sprintf(head, a.Component, "statusz", "Statusz")+fmt.Sprintf(
			"Started: %s\nUp: %s\nGo version: %s\nBinary version: %s\nPaths: %s\n",
			a.Started.UTC().Format(time.UnixDate), up, runtime.Version(), a.Version, strings.Join(a.Paths, " ")))
	}
	return write(w, as, statusz{
		TypeMeta: object, ObjectMeta: metav1.ObjectMeta{Name: a.Component}, StartTime: metav1.NewTime(a.Started), UptimeSeconds: int64(up / time.Second),
		GoVersion: runtime.Version(), BinaryVersion: a.Version, Paths: a.Paths,
	})
}

// Flagz answers /flagz.
func (a *About) Flagz(w http.ResponseWriter, r *http.Request) error {
	as, object := form(r, "Flagz")
	switch as {
	case "":
		return refuse(w, "Flagz")
	case plain:
		out := fmt.Sprintf(head, a.Component, "flagz", "Flagz")
		for _, name := range slices.Sorted(maps.Keys(a.Flags)) {
			out += name + ": " + a.Flags[name] + "\n"
		}
		return text(w, out)
	}
	return write(w, as, flagz{TypeMeta: object, ObjectMeta: metav1.ObjectMeta{Name: a.Component}, Flags: a.Flags})
}

// The forms of an answer.
const (
	plain    = "text/plain"
	jsonForm = "application/json"
	yamlForm = "application/yaml"
)

// form is the first form that the client takes and that there is, and the object that it is to be;
// empty for none. A client that says nothing gets text.
func form(r *http.Request, kind string) (string, metav1.TypeMeta) {
	accepts := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accepts) == "" {
		return plain, metav1.TypeMeta{}
	}
	for part := range strings.SplitSeq(accepts, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		object := params["as"] == kind && params["g"] == group && slices.Contains(versions, params["v"])
		switch media {
		case plain, "text/*", "*/*":
			if params["as"] == "" {
				return plain, metav1.TypeMeta{}
			}
		case jsonForm, yamlForm:
			if object {
				return media, metav1.TypeMeta{Kind: kind, APIVersion: group + "/" + params["v"]}
			}
		}
	}
	return "", metav1.TypeMeta{}
}

func refuse(w http.ResponseWriter, kind string) error {
	http.Error(w, fmt.Sprintf("it is there as %s, or as %s or %s;g=%s;v=%s;as=%s", plain, jsonForm, yamlForm, group, versions[0], kind), http.StatusNotAcceptable)
	return nil
}

func text(w http.ResponseWriter, out string) error {
	w.Header().Set("Content-Type", plain+"; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(out)) // only the one who asked is gone
	return nil
}

func write(w http.ResponseWriter, as string, object any) error {
	encode := json.Marshal
	if as == yamlForm {
		encode = func(v any) ([]byte, error) { return yaml.Marshal(v) }
	}
	out, err := encode(object)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", as)
	_, _ = w.Write(out) // only the one who asked is gone
	return nil
}
