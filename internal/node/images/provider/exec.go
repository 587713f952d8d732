package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of a plugin's run.
const (
	timeLimit   = time.Minute
	killLimit   = 2 * time.Second // for what it has started, that holds its output open
	answerLimit = 1 << 20
	errorLimit  = 4 << 10
)

// request and response are the messages of credentialprovider.kubelet.k8s.io, the same in all
// of its versions but for the token and the annotations, which v1 alone has.
type request struct {
	metav1.TypeMeta `json:",inline"`

	Image       string            `json:"image"`
	Token       string            `json:"serviceAccountToken,omitempty"`
	Annotations map[string]string `json:"serviceAccountAnnotations,omitempty"`
}

type response struct {
	metav1.TypeMeta `json:",inline"`

	CacheKeyType  string           `json:"cacheKeyType"`
	CacheDuration *metav1.Duration `json:"cacheDuration"`
	Auth          map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`
}

// What an answer is good for.
const (
	forImage    = "Image"
	forRegistry = "Registry"
	forAll      = "Global"
)

// run asks the program once.
func (p *plugin) run(ctx context.Context, r request) (*response, error) {
	r.TypeMeta = metav1.TypeMeta{APIVersion: p.APIVersion, Kind: "CredentialProviderRequest"}
	in, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("no answer for %s", p.limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.Args...)
	cmd.Env = os.Environ()
	for _, v := range p.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	out, told := &bounded{limit: answerLimit}, &bounded{limit: errorLimit, cut: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, told
	// A plugin that is a script has children. They end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = end, killLimit
	if err := cmd.Run(); err != nil {
		switch {
		case errors.Is(err, exec.ErrWaitDelay):
			_ = end()
			err = errors.New("it has ended, and what it has started goes on and holds its output open")
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case out.over: // and it may have ended by SIGPIPE
			err = fmt.Errorf("it answered with more than %d bytes", answerLimit)
		}
		if text := strings.TrimSpace(told.kept.String()); text != "" {
			return nil, fmt.Errorf("%w; it said: %s", err, text)
		}
		return nil, err
	}
	return p.parse(out.kept.Bytes())
}

// parse reads an answer, which has to be of the version that was asked in. Fields that are not known are left to newer plugins.
func (p *plugin) parse(data []byte) (*response, error) {
	var a response
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, errors.New("its answer is not in JSON, or a field has a wrong type") // and may have passwords
	}
	if a.APIVersion != p.APIVersion || a.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("its answer is %s %q; want CredentialProviderResponse of %s", a.APIVersion, a.Kind, p.APIVersion)
	}
	switch a.CacheKeyType {
	case forImage, forRegistry, forAll:
		return &a, nil
	}
	return nil, fmt.Errorf("its answer has cacheKeyType %q; it is %s, %s or %s", a.CacheKeyType, forImage, forRegistry, forAll)
}

var errTooLong = errors.New("too long")

// bounded keeps the first bytes.
type bounded struct {
	kept  bytes.Buffer // not embedded: its ReadFrom has no limit
	limit int
	cut   bool // and drops the others, instead of failing
	over  bool // there were others
}

func (b *bounded) Write(p []byte) (int, error) {
	if left := b.limit - b.kept.Len(); len(p) > left {
		b.kept.Write(p[:left])
		b.over = true
		if !b.cut {
			return left, errTooLong
		}
		return len(p), nil
	}
	return b.kept.Write(p)
}
