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

{{/* The selector that every webhook about objects in namespaces has. */}}
{{- define "fairlead.webhook.selector" -}}
namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ append .Values.webhook.exemptNamespaces .Release.Namespace | uniq | join ", " }}]}
{{- end }}

{{/* Whom API servers ask, at the path that is the second of the list. */}}
{{- define "fairlead.webhook.client" -}}
{{- $top := first . -}}
clientConfig:
    service: {namespace: {{ $top.Release.Namespace }}, name: fairlead-webhook, path: {{ last . }}, port: 443}
{{- with $top.Values.webhook.certificates.caBundle }}
    caBundle: {{ . }}
{{- end }}
{{- end }}

{{/* The arguments, without those that are the program's defaults. */}}
{{- define "fairlead.webhook.args" -}}
- webhook
{{- if ne .Release.Namespace "fairlead-system" }}
- --namespace={{ .Release.Namespace }}
{{- end }}
{{- if .Values.webhook.garden }}
- --garden
- --mutating-configuration=
{{- else if ne (join "," .Values.webhook.exemptNamespaces) "kube-system" }}
{{- range .Values.webhook.exemptNamespaces }}
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
