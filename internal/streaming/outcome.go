package streaming

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"fairlead.run/internal/pod"
)

// outcome is how a session went: an exit code, or an error.
type outcome struct {
	code int32
	err  error
}

func outcomeOf(e pod.Exit, err error) outcome {
	if err == nil && e.Lost {
		err = fmt.Errorf("the process has ended, but nobody saw its exit code")
	}
	return outcome{code: e.Code, err: err}
}

// wireStatus is the part of Kubernetes' Status object that clients of exec and
// attach look at.
type wireStatus struct {
	Metadata struct{}     `json:"metadata"`
	Status   string       `json:"status"`
	Message  string       `json:"message,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Details  *wireDetails `json:"details,omitempty"`
	Code     int32        `json:"code,omitempty"`
}

type wireDetails struct {
	Causes []wireCause `json:"causes"`
}

type wireCause struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// json is the outcome for protocols from version 4 on.
func (o outcome) json() []byte {
	s := wireStatus{Status: "Success"}
	switch {
	case o.err != nil:
		s = wireStatus{Status: "Failure", Reason: "InternalError", Message: o.err.Error(), Code: http.StatusInternalServerError}
	case o.code != 0:
		s = wireStatus{Status: "Failure", Reason: "NonZeroExitCode", Message: o.text()}
		s.Details = &wireDetails{Causes: []wireCause{{Reason: "ExitCode", Message: strconv.Itoa(int(o.code))}}}
	}
	b, _ := json.Marshal(s) // strings and numbers only, cannot fail
	return b
}

// text is the outcome for older protocols: nothing, if all went well.
func (o outcome) text() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.code != 0:
		return fmt.Sprintf("command terminated with exit code %d", o.code)
	}
	return ""
}

// encode is one or the other.
func (o outcome) encode(asJSON bool) []byte {
	if asJSON {
		return o.json()
	}
	return []byte(o.text())
}
