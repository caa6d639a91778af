{{- define "trestle.name" -}}
{{- if contains "trestle" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-trestle" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "trestle.image" -}}
{{ required "image.repository is missing: name your registry's image of Trestle" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "trestle.secret" -}}
{{ required "existingSecret is missing: name the secret with TRESTLE_DATABASE_URL, TRESTLE_SECRET_KEY, BRIDGE_AUTH_TOKEN and COMPLETIONS_MASTER_KEY" .Values.existingSecret }}
{{- end }}

{{- define "trestle.chosen" -}}
app.kubernetes.io/name: trestle
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "trestle.labels" -}}
{{ include "trestle.chosen" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- /* User 1000 is `node` of the image. */}}
{{- define "trestle.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "trestle.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- /* What is written: data in a volume of its own, in a folder that the program makes for itself alone; the rest ends with the pod. */}}
{{- define "trestle.folders" -}}
- { name: HOME, value: /data }
- { name: XDG_CACHE_HOME, value: /tmp/cache }
- { name: TRESTLE_DATA_DIR, value: /data/trestle }
- { name: TRESTLE_CONFIG, value: /etc/trestle/trestle.yaml }
{{- end }}

{{- define "trestle.mounts" -}}
- { name: data, mountPath: /data }
- { name: tmp, mountPath: /tmp }
- { name: config, mountPath: /etc/trestle, readOnly: true }
{{- end }}

{{- define "trestle.claim" -}}
- metadata: { name: data }
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .className }}
    storageClassName: {{ . | quote }}
    {{- end }}
    resources: { requests: { storage: {{ .size | quote }} } }
{{- end }}
