{{/* The image, by digest if there is one. */}}
{{- define "fairlead.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* What selects pods of the webhook. */}}
{{- define "fairlead.webhook.labels" -}}
app.kubernetes.io/name: fairlead-webhook
{{- end }}

{{/* What gardener-operator tells of a virtual garden, in JSON. */}}
{{- define "fairlead.virtual" -}}
{{ get .Values.gardener "virtualCluster" | default dict | toJson }}
{{- end }}

{{/* Which part of the webhook a release is: runtime has what runs, virtual what is in a
virtual garden, and "" is both in one cluster. gardener-operator installs each by itself. */}}
{{- define "fairlead.webhook.part" -}}
{{- $virtual := include "fairlead.virtual" . | fromJson -}}
{{- if .Values.webhook.part -}}
{{ .Values.webhook.part }}
{{- else if get $virtual "serviceAccount" -}}
virtual
{{- else if get $virtual "namespace" -}}
runtime
{{- end -}}
{{- end }}

{{/* The namespace of the webhook where the API server is that it asks. */}}
{{- define "fairlead.webhook.namespace" -}}
{{ .Values.webhook.virtualNamespace | default (get (include "fairlead.virtual" . | fromJson) "namespace") | default .Release.Namespace }}
{{- end }}

{{/* The address of the webhook, where API servers do not go by its Service. */}}
{{- define "fairlead.webhook.url" -}}
{{- if and (include "fairlead.webhook.part" .) (not .Values.webhook.url) -}}
{{ fail "webhook.url has to say where the API server of the virtual garden finds the webhook, as in https://fairlead-webhook.garden" }}
{{- end -}}
{{ trimSuffix "/" .Values.webhook.url }}
{{- end }}

{{/* The namespaces whose pods are admitted as they are, beside the webhook's own. Those of
the operator's bring classes to nodes: a policy for all namespaces must not hold for them. */}}
{{- define "fairlead.webhook.exempt" -}}
{{- $names := .Values.webhook.exemptNamespaces -}}
{{- with .Values.operator -}}
{{- if and .enabled (not .gardener) .namespace -}}
{{- $names = append $names .namespace -}}
{{- end -}}
{{- end -}}
{{ $names | uniq | join "," }}
{{- end }}

{{/* The selector that every webhook about objects in namespaces has. */}}
{{- define "fairlead.webhook.selector" -}}
namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ append (splitList "," (include "fairlead.webhook.exempt" .)) .Release.Namespace | compact | uniq | join ", " }}]}
{{- end }}

{{/* Whom API servers ask, at the path that is the second of the list. */}}
{{- define "fairlead.webhook.client" -}}
{{- $top := first . -}}
{{- $url := include "fairlead.webhook.url" $top -}}
clientConfig:
{{- if $url }}
    url: {{ $url }}{{ last . }}
{{- else }}
    service: {namespace: {{ $top.Release.Namespace }}, name: fairlead-webhook, path: {{ last . }}, port: 443}
{{- end }}
{{- with $top.Values.webhook.certificates.caBundle }}
    caBundle: {{ . }}
{{- end }}
{{- end }}

{{/* The arguments, without those that are the program's defaults. */}}
{{- define "fairlead.webhook.args" -}}
- webhook
{{- $namespace := include "fairlead.webhook.namespace" . }}
{{- if ne $namespace "fairlead-system" }}
- --namespace={{ $namespace }}
{{- end }}
{{- if .Values.webhook.kubeconfigSecret }}
- --kubeconfig=/garden/kubeconfig
{{- else if include "fairlead.webhook.part" . }}
- --kubeconfig=$(GARDEN_KUBECONFIG)
{{- end }}
{{- with include "fairlead.webhook.url" . }}
- --serve-as={{ get (urlParse .) "hostname" }}
{{- end }}
{{- if .Values.webhook.garden }}
- --garden
- --mutating-configuration=
{{- if ne .Values.webhook.virtualizationCapability "nestedVirtualization=supported" }}
- --virtualization-capability={{ .Values.webhook.virtualizationCapability }}
{{- end }}
{{- else if ne (include "fairlead.webhook.exempt" .) "kube-system" }}
{{- range splitList "," (include "fairlead.webhook.exempt" .) | compact }}
- --exempt={{ . }}
{{- end }}
{{- end }}
{{- if .Values.webhook.certificates.secret }}
- --cert-dir=/certificates
{{- end }}
{{- if .Values.webhook.clients.configMap }}
- --client-ca=/clients/ca.crt
{{- end }}
{{- range .Values.webhook.clients.names }}
- --client-name={{ . }}
{{- end }}
{{- range .Values.webhook.extraArgs }}
- {{ quote . }}
{{- end }}
{{- end }}

{{/* The arguments of the operator, without those that are its defaults. */}}
{{- define "fairlead.operator.args" -}}
- --namespace={{ or .Values.operator.namespace .Release.Namespace }}
{{- if .Values.operator.gardener }}
- --gardener
{{- end }}
{{- range .Values.operator.extraArgs }}
- {{ quote . }}
{{- end }}
{{- end }}
