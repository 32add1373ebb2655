{{/* The namespaces of a release. */}}
{{- define "hotplate.agents" -}}{{ .Release.Namespace }}-agents{{- end }}
{{- define "hotplate.builds" -}}{{ .Release.Namespace }}-builds{{- end }}
{{- define "hotplate.organizations" -}}{{ .Release.Namespace }}-t-{{- end }}

{{- define "hotplate.tokens" -}}{{ .Values.tokens.existingSecret | default "hotplate-tokens" }}{{- end }}

{{- define "hotplate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.Version }}
{{- end }}

{{/* Of every object. */}}
{{- define "hotplate.labels" -}}
app.kubernetes.io/managed-by: hotplate
app.kubernetes.io/part-of: hotplate
{{- end }}

{{/* Of the objects of one part, and what its pods are found by: (list part). */}}
{{- define "hotplate.part" -}}
{{ include "hotplate.labels" . }}
{{ include "hotplate.selector" . }}
{{- end }}
{{- define "hotplate.selector" -}}
app.kubernetes.io/name: hotplate-{{ . }}
{{- end }}

{{/* A size as people write it, in bytes: (dict "key" "size"). */}}
{{- define "hotplate.bytes" -}}
{{- $size := kindIs "float64" .size | ternary (int64 .size) .size }}
{{- $text := toString $size | lower | replace " " "" }}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" $text }}
{{- $unit := trimPrefix $number $text }}
{{- $factors := dict "" 1 "b" 1 "kb" 1000 "mb" 1000000 "gb" 1000000000 "tb" 1000000000000
    "kib" 1024 "mib" 1048576 "gib" 1073741824 "tib" 1099511627776
    "ki" 1024 "mi" 1048576 "gi" 1073741824 "ti" 1099511627776 }}
{{- if or (not $number) (not (hasKey $factors $unit)) }}
{{- fail (printf "%s: '%v' is not a size; write bytes, or KB MB GB TB KiB MiB GiB TiB" .key .size) }}
{{- end }}
{{- mulf (float64 $number) (get $factors $unit) | int64 }}
{{- end }}

{{/* Helm reads every number as one with a fraction, and writes large ones in powers of ten: those
     of a map that are whole become so. */}}
{{- define "hotplate.whole" -}}
{{- $map := . }}
{{- range $key, $value := $map }}
{{- if kindIs "map" $value }}
{{- include "hotplate.whole" $value }}
{{- else if kindIs "slice" $value }}
{{- range $value }}{{ if kindIs "map" . }}{{ include "hotplate.whole" . }}{{ end }}{{ end }}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{- $_ := set $map $key (int64 $value) }}
{{- end }}
{{- end }}
{{- end }}
