{{/* What the level `restricted` asks of a pod, and of a container. */}}
{{- define "hotplate.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "hotplate.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "hotplate.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Variables for the blobs' URL: (list . name), the Secret's name where the pod is. */}}
{{- define "hotplate.blobsVariables" -}}
{{- if .Values.blobs.secretName }}
envFrom:
  - secretRef:
      name: {{ .Values.blobs.secretName }}
{{- end }}
{{- end }}

{{/* One port of a Service, with the node's where one is asked for:
     (dict "name" "port" "target" "nodePort"). */}}
{{- define "hotplate.port" -}}
- name: {{ .name }}
  port: {{ .port }}
  targetPort: {{ .target }}
  {{- with .nodePort }}
  nodePort: {{ . }}
  {{- end }}
{{- end }}

{{/* What the installer's Secrets hold: (list . name …), so that pods start anew with an upgrade after
     they have changed. Empty names are left out. */}}
{{- define "hotplate.held" -}}
{{- $context := first . }}
{{- $held := dict }}
{{- range $name := compact (rest .) }}
{{- $found := lookup "v1" "Secret" $context.Release.Namespace $name | default dict }}
{{- $_ := set $held $name ($found.data | default dict) }}
{{- end }}
{{- toJson $held | sha256sum }}
{{- end }}
