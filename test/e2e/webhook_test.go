package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.run/test/e2e/cluster"
	"fairlead.run/test/e2e/machine"
)

// Where a webhook serves that is a process beside the cluster.
const (
	webhookReviews = "127.0.0.1:9443"
	webhookHealth  = "127.0.0.1:8081"

	webhookNamespace = "fairlead-system"
	webhookSecret    = "/api/v1/namespaces/fairlead-system/secrets/fairlead-webhook-certificate"
	mutatingConfig   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/fairlead-webhook"
	validatingConfig = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/fairlead-webhook"
	policyPath       = "/apis/fairlead.run/v1alpha1/runtimeclasspolicies"
)

// auditPolicy has a line for each change, as notes of admission are shown nowhere else,
// and for all that the webhook asks.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:fairlead-system:fairlead-webhook"]}
- {level: Metadata, users: ["system:serviceaccount:fairlead-nodes:fairlead-operator", "system:serviceaccount:fairlead-nodes:fairlead-installer"]}
- {level: Metadata, verbs: [create, update, patch], resources: [{resources: [pods]}]}
- {level: None}
`

const auditPolicyFile = "audit-policy.yaml"

// auditLog is what the API server has written since the cluster started.
func auditLog() string { return filepath.Join(*output, "audit.log") }

// withoutPlugin has the webhook do alone what Kubernetes' admission plugin does.
const withoutPlugin = "--disable-admission-plugins=RuntimeClass"

// webhookFlags are the API server's. It finds the pods of a Service by itself, as
// there is no kube-proxy.
func webhookFlags() []string {
	return []string{"--enable-aggregator-routing", "--audit-policy-file", filepath.Join(*output, auditPolicyFile), "--audit-log-path", auditLog(), withoutPlugin}
}

// prepareAudit writes what the flags name, and takes the log of an earlier run away.
func prepareAudit() error {
	if err := os.MkdirAll(*output, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(auditLog()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*output, auditPolicyFile), []byte(auditPolicy), 0o644)
}

func needWebhook(t *testing.T) {
	t.Helper()
	if !*webhook {
		t.Skip("no -webhook: make e2e-webhook runs this")
	}
}

// The webhook in place of Kubernetes' own admission plugin, as a process that may do
// what its manifests allow.
func TestWebhook(t *testing.T) {
	needWebhook(t)
	h := serveWebhook(t)
	// The specs have to be first: they count the nodes.
	t.Run("specs", h.specs)
	t.Run("policies", h.policies)
	t.Run("failures", h.failures)
	t.Run("fleet", h.fleet)
	t.Run("table", h.table)
}

// hook is a webhook that is served.
type hook struct {
	*api
	process *cluster.Process
}

// serveWebhook applies the manifests of deploy, but for the Deployment, in the place
// of which a process serves.
func serveWebhook(t *testing.T) *hook {
	t.Helper()
	h := &hook{api: newAPI(t)}
	applyFiles(t, "../../deploy/crds", "../../deploy/webhook/00-namespace.yaml", "../../deploy/webhook/10-rbac.yaml")
	kubectl(t, "wait", "--for=condition=Established", "crd/runtimeclasspolicies.fairlead.run")
	var err error
	h.process, err = node.Program(t.Context(), machine.Program{
		Name: "webhook",
		Argv: []string{
			filepath.Join(*fairlead, "fairlead"), "webhook", "--kubeconfig", h.kubeconfig(t),
			"--listen", webhookReviews, "--health", webhookHealth, "--serve-as", "127.0.0.1", "--log-level", "debug",
		},
		Env: []string{"GOMEMLIMIT=200MiB"}, // as in deploy/webhook
	}, h.ready)
	if err != nil {
		t.Fatal(err)
	}
	config := configurations(t)
	t.Cleanup(func() {
		// No pod could be made any more with these, and the tests after this one make some.
		if _, err := node.KubectlInput(context.Background(), config, "delete", "--ignore-not-found", "-f", "-"); err != nil {
			t.Error(err)
		}
		if err := h.process.Kill(); err != nil {
			t.Error(err)
		}
	})
	apply(t, config)
	h.told(t)
	return h
}

// told waits until the webhook has told API servers whom to believe.
func (h *hook) told(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		for name, bundle := range h.bundles(t) {
			if bundle == "" {
				return fmt.Errorf("%s has no caBundle", name)
			}
		}
		got := h.ask(t, http.MethodPost, podsOf("default")+"?dryRun=All", gated("a", nil))
		if !got.ok() && got.code != http.StatusForbidden {
			return fmt.Errorf("no pod can be created: %s", got)
		}
		return nil
	})
}

// applyFiles applies manifests as they are, and deletes them with the test.
func applyFiles(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		kubectl(t, "apply", "--server-side", "-f", path)
		t.Cleanup(func() {
			_, err := node.Kubectl(context.Background(), "delete", "--ignore-not-found", "--timeout", patience.String(), "-f", path)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

var (
	servicePart = regexp.MustCompile(`service: \{namespace: fairlead-system, name: fairlead-webhook, path: (/[a-z-]+), port: 443\}`)
	webhookPart = regexp.MustCompile(`(?m)^  clientConfig:`)
)

// configurations are those of deploy, with the address of the process in the place of
// a Service's.
func configurations(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/webhook/30-configurations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if has, all := len(servicePart.FindAll(text, -1)), len(webhookPart.FindAll(text, -1)); has != all || all == 0 {
		t.Fatalf("%d of %d webhooks have a Service that is found here", has, all)
	}
	return string(servicePart.ReplaceAll(text, []byte("url: https://"+webhookReviews+"$1")))
}

const tokenKubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: e2e
  cluster: {server: %q, certificate-authority: %q}
users:
- name: webhook
  user: {token: %q}
contexts:
- name: e2e
  context: {cluster: e2e, user: webhook}
current-context: e2e
`

// kubeconfig is that of the service account of deploy, so that the process has its
// rights and no others.
func (h *hook) kubeconfig(t *testing.T) string {
	t.Helper()
	return accountKubeconfig(t, webhookNamespace, "fairlead-webhook")
}

// accountKubeconfig is that of a service account of deploy.
func accountKubeconfig(t *testing.T, namespace, account string) string {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", node.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(tokenKubeconfig, cfg.Host, cfg.CAFile, accountToken(t, namespace, account))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func accountToken(t *testing.T, namespace, account string) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, "create", "token", account, "-n", namespace, "--duration", "8h"))
}

// ready says why the webhook is not ready, if it is not.
func (h *hook) ready(ctx context.Context) error {
	code, text, err := get(ctx, "http://"+webhookHealth+"/readyz")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d %s", code, text)
	}
	return err
}

func get(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// metrics are the lines of the webhook that begin with a name.
func (h *hook) metrics(t *testing.T, name string) (out []string) {
	t.Helper()
	_, text, err := get(t.Context(), "http://"+webhookHealth+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// noPanics has to be asked before the process ends, as it counts from its start.
func (h *hook) noPanics(t *testing.T) {
	t.Helper()
	if got := h.metrics(t, "fairlead_webhook_panics_total"); len(got) != 1 || got[0] != "fairlead_webhook_panics_total 0" {
		t.Errorf("panics: %q", got)
	}
}

// bundles are the authorities that API servers are told of, by webhook.
func (h *hook) bundles(t *testing.T) map[string]string {
	t.Helper()
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	h.must(t, http.MethodGet, mutatingConfig, nil, &mutating)
	h.must(t, http.MethodGet, validatingConfig, nil, &validating)
	out := map[string]string{}
	for _, w := range mutating.Webhooks {
		out[w.Name] = string(w.ClientConfig.CABundle)
	}
	for _, w := range validating.Webhooks {
		out[w.Name] = string(w.ClientConfig.CABundle)
	}
	return out
}

// client is one that believes what API servers are told to believe.
func (h *hook) client(t *testing.T) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	for name, bundle := range h.bundles(t) {
		if !roots.AppendCertsFromPEM([]byte(bundle)) {
			t.Fatalf("the caBundle of %s is no certificate: %q", name, bundle)
		}
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// review sends a body to a path of the webhook, as an API server would.
func (h *hook) review(ctx context.Context, client *http.Client, path, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+webhookReviews+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// specs are upstream's. They were written for Kubernetes' plugin, and it is off.
func (h *hook) specs(t *testing.T) {
	passSpecs(t, "RuntimeClass")
	asked, refused := h.metrics(t, "fairlead_webhook_requests_total"), h.metrics(t, "fairlead_webhook_rejections_total")
	for _, want := range []string{`webhook="mutate-pods",operation="CREATE",result="allowed"`, `webhook="mutate-pods",operation="CREATE",result="refused"`} {
		if !strings.Contains(strings.Join(asked, "\n"), want) {
			t.Errorf("the webhook counted no request with %s: %q", want, asked)
		}
	}
	for _, reason := range []string{`reason="ClassMissing"`, `reason="SelectorConflict"`} {
		if !strings.Contains(strings.Join(refused, "\n"), reason) {
			t.Errorf("the webhook counted no refusal because of %s: %q", reason, refused)
		}
	}
	h.noPanics(t)
}

// gated is a pod that never gets a node, with further fields of its spec.
func gated(name string, spec object) object {
	all := object{
		"schedulingGates": []object{{"name": "e2e.fairlead.run/hold"}}, "automountServiceAccountToken": false,
		"containers": []object{{"name": "c", "image": "registry.invalid/e2e/none:1"}},
	}
	for k, v := range spec {
		all[k] = v
	}
	return object{"metadata": object{"name": name}, "spec": all}
}

// message is why an answer refuses.
func (a answer) message() string {
	var status struct{ Message string }
	if json.Unmarshal(bytes.TrimSpace(a.body), &status) != nil {
		return string(a.body)
	}
	return status.Message
}
