{{- /* Name of the ConfigMap with the hub's kubeconfig: that of the overlay, or one of its own for another server. */}}
{{- define "compute.hubConfig" -}}
{{- $server := .root.Values.hub.server -}}
{{- if eq $server "https://karmada-apiserver.karmada-system.svc.cluster.local:5443" -}}
compute-downstream-kubeconfig-{{ .hash }}
{{- else -}}
compute-downstream-kubeconfig-{{ $server | sha256sum | trunc 10 }}
{{- end -}}
{{- end -}}

{{- /* True if the role has a manager. */}}
{{- define "compute.hasManager" -}}
{{- if has .Values.role (list "single-project" "management-plane" "cell" "single-cluster") }}true{{ end -}}
{{- end -}}
